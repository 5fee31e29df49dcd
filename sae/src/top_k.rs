//! The largest numbers of a row.

/// Calls `found` with the places of the `k` largest numbers that are above 0, in the order of the row. Of equal
/// numbers the first are taken. `kept` is memory for candidates, which is used again.
pub(super) fn positive_top_k(row: &[f32], k: usize, kept: &mut Vec<u32>, mut found: impl FnMut(usize)) {
    let value = |place: u32| row.get(place as usize).copied().unwrap_or(0.);
    // More than the best `k`, so that there is not much sorting.
    let room = 4 * k + 32;
    kept.clear();
    // Nothing at or below it can be among the best, because `k` places before have more.
    let mut floor = 0f32;
    let best = |kept: &mut Vec<u32>, floor: &mut f32| {
        if kept.len() > k {
            kept.select_nth_unstable_by(k - 1, |a, b| value(*b).total_cmp(&value(*a)).then(a.cmp(b)));
            kept.truncate(k);
            *floor = kept.iter().map(|place| value(*place)).fold(f32::INFINITY, f32::min);
        }
    };
    const LANES: usize = 16;
    for (block, numbers) in row.chunks(LANES).enumerate() {
        // Most blocks have nothing, which is quickly seen.
        let largest =
            numbers.iter().fold(f32::NEG_INFINITY, |largest, x| if *x > largest { *x } else { largest });
        if largest > floor {
            for (lane, x) in numbers.iter().enumerate() {
                if *x > floor {
                    kept.push((block * LANES + lane) as u32);
                }
            }
            if kept.len() + LANES > room {
                best(kept, &mut floor);
            }
        }
    }
    best(kept, &mut floor);
    kept.sort_unstable();
    kept.iter().for_each(|place| found(*place as usize));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use hookpoint_models::init::Init;

    /// By sorting everything.
    fn slowly(row: &[f32], k: usize) -> Vec<usize> {
        let mut places: Vec<usize> = (0..row.len()).filter(|place| row[*place] > 0.).collect();
        places.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
        places.truncate(k);
        places.sort_unstable();
        places
    }

    #[test]
    fn it_finds_what_sorting_finds() {
        let mut init = Init::new(3);
        let mut kept = Vec::new();
        for length in [1, 2, 15, 16, 17, 100, 1000] {
            for k in [1, 2, 7, 64] {
                for levels in [3., 1e6] {
                    // Few levels make many numbers equal.
                    let row: Vec<f32> = (0..length)
                        .map(|_| ((init.unit() - 0.5) * levels).round() as f32 / levels as f32)
                        .collect();
                    let mut found = Vec::new();
                    positive_top_k(&row, k, &mut kept, |place| found.push(place));
                    assert_eq!(found, slowly(&row, k), "{length} {k} {levels}");
                }
            }
        }
    }

    #[test]
    fn numbers_that_are_none_are_passed_over() {
        let mut found = Vec::new();
        positive_top_k(&[f32::NAN, 1., f32::NAN, 2.], 2, &mut Vec::new(), |place| found.push(place));
        assert_eq!(found, [1, 3]);
    }
}
