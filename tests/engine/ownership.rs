use std::sync::Mutex;

use candle_core::{Device, Result, Tensor};
use hookpoint::prelude::*;

use crate::models::{bits, device, full, numbers, wave, zeros, Test};

/// Keeps what it has seen in a buffer of four positions that is written in place, as KV caches do.
#[derive(AutoHook)]
struct Remembers {
    /// [1, 4, 2]
    buffer: Tensor,
    #[hook(skip)]
    hidden: Mutex<(Tensor, usize)>,
}

#[auto_hook]
impl Remembers {
    /// x: [1, pos, 2]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut state = self.hidden.lock().unwrap();
        let at = state.1 % 4;
        state.0.slice_set(x, 1, at)?;
        self.buffer.slice_set(x, 1, at)?;
        state.1 = at + x.dim(1)?;
        let seen = state.0.narrow(1, 0, state.1)?;
        let buffer = self.buffer.clone();
        let flat = buffer.flatten_all()?;
        let window = self.buffer.narrow(1, 0, 1)?;
        (seen.sum_all()? + flat.sum_all()?)? + window.sum_all()?
    }
}

fn remembers() -> Hooked<Remembers> {
    let hidden = Mutex::new((zeros(&[1, 4, 2]), 0));
    Hooked::new(Remembers { buffer: zeros(&[1, 4, 2]), hidden })
}

#[test]
fn buffers_that_are_written_in_place_do_not_change_what_was_cached() -> Test {
    let hooked = remembers();
    let (_, first) = hooked
        .run_with_cache([":seen", ":buffer", ":flat", ":window"], |m| m.forward(&full(1., &[1, 2, 2])))?;
    let before: Vec<Vec<f32>> = first.iter().map(|(_, tensor)| numbers(tensor)).collect();
    assert_eq!(before[0], [1.; 4]);
    for value in [2., 3., 4.] {
        hooked.forward(&full(value, &[1, 2, 2]))?;
    }
    let after: Vec<Vec<f32>> = first.iter().map(|(_, tensor)| numbers(tensor)).collect();
    assert_eq!(after, before);
    Ok(())
}

#[test]
fn a_cached_part_does_not_keep_the_whole_alive() -> Test {
    let hooked = remembers();
    let (_, cache) =
        hooked.run_with_cache([":seen[:, 0]", ":window"], |m| m.forward(&full(1., &[1, 2, 2])))?;
    for (name, tensor) in cache.iter() {
        let (storage, layout) = tensor.storage_and_layout();
        assert_eq!(layout.start_offset(), 0);
        match &*storage {
            candle_core::Storage::Cpu(candle_core::CpuStorage::F32(data)) => {
                assert_eq!(data.len(), tensor.elem_count(), "{name}");
            }
            _ => assert!(!matches!(device(), Device::Cpu)),
        }
    }
    Ok(())
}

#[derive(AutoHook)]
struct Views;

#[auto_hook]
impl Views {
    /// x: [2, 6]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let left = x.narrow(1, 0, 3)?;
        let row = x.narrow(0, 1, 1)?;
        let turned = x.t()?;
        let repeated = x.narrow(0, 0, 1)?.broadcast_as((4, 6))?;
        (left.sum_all()? + row.sum_all()?)? + (turned.sum_all()? + repeated.contiguous()?.sum_all()?)?
    }
}

#[test]
fn windows_are_copied_and_whole_views_are_shared() -> Test {
    let x = wave(1, &[2, 6]);
    let (_, cache) = Hooked::new(Views).run_with_cache(":*", |m| m.forward(&x))?;
    let shares = |name: &str| {
        let (of_x, _) = x.storage_and_layout();
        let (own, _) = cache[name].storage_and_layout();
        std::ptr::eq(&*of_x, &*own)
    };
    assert!(!shares(":left") && !shares(":row"));
    // The same numbers in another order: nothing is gained by a copy.
    assert!(shares(":x") && shares(":turned"));
    assert_eq!(bits(&cache[":left"]), bits(&x.narrow(1, 0, 3)?.contiguous()?));
    assert_eq!(bits(&cache[":turned"]), bits(&x.t()?.contiguous()?));
    assert_eq!(cache[":repeated"].dims(), [4, 6]);
    Ok(())
}

#[test]
fn what_a_hook_returns_is_contiguous() -> Test {
    let hooked = Hooked::new(Views);
    let run = hooked
        .plan()
        .hook(":in", |_, x| Ok(Some(x.t()?.contiguous()?.t()?)))?
        .cache(":in")?
        .run(|m| m.forward(&wave(1, &[2, 6])))?;
    assert!(run.cache[":in"].is_contiguous());
    Ok(())
}
