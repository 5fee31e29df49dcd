//! Where nobody listens, an annotated model computes the same bits as the plain one, and allocates as often.

// A global allocator cannot be written without `unsafe`; this one only counts.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use candle_core::Tensor;
use hookpoint::Result;
use hookpoint_benches::{tiny_sized, Config};

thread_local! {
    /// Of this thread alone: the test harness has others.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count() {
    // A thread that is being torn down is not counted.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: everything is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn allocations(run: &dyn Fn() -> Result<Tensor>) -> Result<usize> {
    // What is made once is not counted.
    run()?;
    let before = ALLOCATIONS.get();
    run()?;
    Ok(ALLOCATIONS.get() - before)
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
