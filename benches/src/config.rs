//! What is done during a run.

/// What is done during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Config {
    /// The twin without macros.
    Plain,
    /// The annotated twin, and nobody listens.
    Idle,
    /// A plan, made once, that caches one module.
    CacheOne,
    /// A plan, made once, that caches every module and parameter: `**`.
    CacheAll,
    /// `run_with_cache("**", ..)`: as `CacheAll`, with the plan made anew for each run.
    RunWithCache,
    /// A plan, made once, that caches every value, also those inside forward code: `**` and `**:*`.
    CacheValues,
    /// A plan, made once, with a hook at one module that leaves everything as it is.
    HookOne,
    /// A plan, made once, that replaces one value inside forward code. (A module whose whole output is
    /// replaced would not run at all, and there would be less than no cost to see.)
    PatchOne,
}

impl Config {
    /// All of them, the yardstick first.
    pub const ALL: [Config; 8] = [
        Config::Plain,
        Config::Idle,
        Config::CacheOne,
        Config::CacheAll,
        Config::RunWithCache,
        Config::CacheValues,
        Config::HookOne,
        Config::PatchOne,
    ];

    /// What reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Config::Plain => "plain",
            Config::Idle => "idle",
            Config::CacheOne => "cache one",
            Config::CacheAll => "cache all",
            Config::RunWithCache => "cache all, new plan",
            Config::CacheValues => "cache all and values",
            Config::HookOne => "hook one",
            Config::PatchOne => "patch one",
        }
    }

    /// The name as one word: `cache-all`.
    pub fn dashed(&self) -> String {
        self.name().replace(", ", "-").replace(' ', "-")
    }
}
