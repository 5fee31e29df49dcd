//! A pair of twins with an input, and what each configuration does with them.

use candle_core::{Device, Module, Tensor};
use hookpoint::{AutoHook, Hooked, Kind, Result};

use crate::{bare, gpt2, tiny, Config, Weights};

/// A pair of twins with the same weights, and an input.
pub struct Subject<P, A> {
    /// What reports call it.
    pub name: &'static str,
    /// The twin without macros.
    pub plain: P,
    /// The annotated twin.
    pub hooked: Hooked<A>,
    /// What both are given.
    pub input: Tensor,
    /// The one module that is cached and hooked.
    module: &'static str,
    /// The one value that is patched, with what it is anyway.
    value: &'static str,
}

/// The twins of the model that does nothing.
pub type BareSized = Subject<bare::plain::Bare, bare::annotated::Bare>;
/// The twins of the tiny model.
pub type TinySized = Subject<tiny::plain::Tiny, tiny::annotated::Tiny>;
/// The twins of the GPT-2-sized model.
pub type Gpt2Sized = Subject<gpt2::plain::Gpt2, gpt2::annotated::Gpt2>;

/// The twins have a `forward` of their own, and no trait in common.
macro_rules! modules {
    ($($ty:ty),*) => { $(
        impl Module for $ty {
            fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
                <$ty>::forward(self, x)
            }
        }
    )* };
}
modules!(
    bare::plain::Bare,
    bare::annotated::Bare,
    tiny::plain::Tiny,
    tiny::annotated::Tiny,
    gpt2::plain::Gpt2,
    gpt2::annotated::Gpt2
);

/// How many points a forward reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Modules and parameters: what `**` selects.
    pub modules: usize,
    /// All points: also arguments and bindings inside forward code.
    pub all: usize,
}

/// A hundred modules that do nothing, and one row.
pub fn bare_sized() -> Result<BareSized> {
    let (plain, annotated) = (bare::plain::Bare::new(100), bare::annotated::Bare::new(100));
    let input = Weights::default().get("input", (1, tiny::WIDTH), 1.)?;
    let hooked = Hooked::new(annotated);
    Ok(Subject { name: "bare", plain, hooked, input, module: "echoes.3", value: "echoes.3:same" })
}

/// Eight residual blocks of width 4, and one row.
pub fn tiny_sized() -> Result<TinySized> {
    let weights = Weights::default();
    let plain = tiny::plain::Tiny::new(&weights, 8)?;
    let annotated = tiny::annotated::Tiny::new(&weights, 8)?;
    let input = weights.get("input", (1, tiny::WIDTH), 1.)?;
    let hooked = Hooked::new(annotated);
    Ok(Subject { name: "tiny", plain, hooked, input, module: "blocks.3", value: "blocks.3:hidden" })
}

/// A transformer of the size of GPT-2 small, and so many tokens.
pub fn gpt2_sized(tokens: u32) -> Result<Gpt2Sized> {
    let weights = Weights::default();
    let plain = gpt2::plain::Gpt2::new(&weights)?;
    let annotated = gpt2::annotated::Gpt2::new(&weights)?;
    let ids: Vec<u32> = (0..tokens).map(|i| i * 7919 % gpt2::VOCABULARY as u32).collect();
    let input = Tensor::from_vec(ids, (1, tokens as usize), &Device::Cpu)?;
    let hooked = Hooked::new(annotated);
    Ok(Subject { name: "gpt2-sized", plain, hooked, input, module: "h.3.attn", value: "h.3:mid" })
}

impl<P: Module, A: Module + AutoHook> Subject<P, A> {
    /// One forward under a configuration, to be called as often as one likes. Plans are made here, not
    /// in the call.
    pub fn runner(&self, config: Config) -> Result<Box<dyn Fn() -> Result<Tensor> + '_>> {
        let plan = self.hooked.plan();
        let plan = match config {
            Config::Plain => return Ok(Box::new(|| Ok(self.plain.forward(&self.input)?))),
            Config::Idle => return Ok(Box::new(|| self.hooked.run(|model| model.forward(&self.input)))),
            Config::RunWithCache => {
                return Ok(Box::new(|| {
                    let (output, cache) =
                        self.hooked.run_with_cache("**", |model| model.forward(&self.input))?;
                    std::hint::black_box(cache);
                    Ok(output)
                }))
            }
            Config::CacheOne => plan.cache(self.module)?,
            Config::CacheAll => plan.cache("**")?,
            Config::CacheValues => plan.cache(["**", "**:*"])?,
            Config::HookOne => plan.hook(self.module, |_, _| Ok(None))?,
            Config::PatchOne => {
                let (_, cache) =
                    self.hooked.run_with_cache(self.value, |model| model.forward(&self.input))?;
                plan.patch(self.value, cache.try_get(self.value)?)?
            }
        };
        Ok(Box::new(move || {
            let run = plan.run(|model| model.forward(&self.input))?;
            std::hint::black_box(run.cache);
            Ok(run.output)
        }))
    }

    /// Counts the points that one forward reaches.
    pub fn counts(&self) -> Result<Counts> {
        let scan = self.hooked.scan(|model| model.forward(&self.input))?;
        let modules = scan.dict.iter().filter(|entry| entry.kind() != Kind::Value);
        let modules = modules.map(|entry| entry.calls()).sum();
        Ok(Counts { modules, all: scan.dict.iter().map(|entry| entry.calls()).sum() })
    }
}
