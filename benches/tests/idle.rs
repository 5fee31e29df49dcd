//! Where nobody listens, an annotated model computes the same bits as the plain one, and allocates as often.

use candle_core::Tensor;
use hookpoint::Result;
use hookpoint_benches::{tiny_sized, Config};
use hookpoint_counting::{asked, Counting};

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(run: &dyn Fn() -> Result<Tensor>) -> Result<usize> {
    // What is made once is not counted.
    run()?;
    let before = asked();
    run()?;
    Ok(asked() - before)
}

#[test]
fn idle_points_allocate_nothing() -> Result<()> {
    std::env::set_var("RAYON_NUM_THREADS", "1");
    let subject = tiny_sized()?;
    let plain = allocations(&*subject.runner(Config::Plain)?)?;
    assert!(plain > 0, "nothing was counted");
    assert_eq!(allocations(&*subject.runner(Config::Idle)?)?, plain);
    Ok(())
}

#[test]
fn every_configuration_computes_the_same_bits() -> Result<()> {
    let subject = tiny_sized()?;
    let bits = |config| -> Result<Vec<u32>> {
        let output = subject.runner(config)?()?;
        Ok(output.flatten_all()?.to_vec1::<f32>()?.into_iter().map(f32::to_bits).collect())
    };
    let plain = bits(Config::Plain)?;
    for config in Config::ALL {
        assert_eq!(bits(config)?, plain, "{}", config.name());
    }
    Ok(())
}
