//! Reading and writing parts of tensors, held against plain loops over the elements.

use candle_core::{DType, Device, Tensor, Var};

use crate::error::{ErrorKind, Result};
use crate::pattern::Index;

fn index(text: &str) -> Index {
    Index::parse(text).unwrap()
}

/// `0, 1, 2, ..` in this shape.
fn counted(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    Tensor::from_vec((0..count).map(|n| n as f32).collect::<Vec<_>>(), shape, &Device::Cpu).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// The places of a dimension that an item takes, counted the slow way.
fn places(item: &str, size: usize) -> Vec<usize> {
    let bound = |text: &str, open: usize| match text.trim().parse::<i64>() {
        Ok(n) if n < 0 => (size as i64 + n) as usize,
        Ok(n) => n as usize,
        Err(_) => open,
    };
    let parts: Vec<&str> = item.trim().split(':').collect();
    match parts.as_slice() {
        ["*" | "..."] => (0..size).collect(),
        [place] => vec![bound(place, 0)],
        [start, end] => (bound(start, 0)..bound(end, size)).collect(),
        [start, end, step] => (bound(start, 0)..bound(end, size)).step_by(bound(step, 1)).collect(),
        _ => unreachable!(),
    }
}

/// The flat positions that an index without `...` selects, in order.
fn selected(text: &str, shape: &[usize]) -> Vec<usize> {
    let mut items: Vec<&str> = text.split(',').collect();
    items.resize(shape.len(), ":");
    items.iter().zip(shape).fold(vec![0], |flat, (item, &size)| {
        let places = places(item, size);
        flat.iter().flat_map(|base| places.iter().map(move |place| base * size + place)).collect()
    })
}

/// Reads and writes through `text` in a tensor and compares every element.
fn check(text: &str, tensor: &Tensor) {
    let index = index(text);
    let before = numbers(tensor);
    let flat = selected(text, tensor.dims());
    let part = index.read("x", tensor).unwrap();
    assert_eq!(part.dims(), index.selected_shape("x", tensor.dims()).unwrap(), "[{text}]");
    assert_eq!(numbers(&part), flat.iter().map(|&at| before[at]).collect::<Vec<_>>(), "[{text}]");

    let new: Vec<f32> = (0..flat.len()).map(|n| -1. - n as f32).collect();
    let part = Tensor::from_vec(new.clone(), part.dims(), &Device::Cpu).unwrap();
    let written = index.write("x", tensor, &part.to_dtype(tensor.dtype()).unwrap()).unwrap();
    let mut expected = before.clone();
    flat.iter().zip(new).for_each(|(&at, new)| expected[at] = new);
    assert_eq!(written.dims(), tensor.dims(), "[{text}]");
    assert_eq!(written.dtype(), tensor.dtype());
    assert!(written.is_contiguous(), "[{text}]");
    assert_eq!(numbers(&written), expected, "[{text}]");
    assert_eq!(numbers(tensor), before, "[{text}] changed its argument");
}

const ITEMS_OF_5: [&str; 14] =
    [":", "0", "2", "-1", "0:5", "1:3", "-2:", ":-1", "::2", "1::2", "1:4:2", "::4", "::5", "0:2:9"];

#[test]
fn every_combination_of_items_is_read_and_written() {
    let tensor = counted(&[5, 5, 5]);
    for a in ITEMS_OF_5 {
        check(a, &tensor);
        for b in ITEMS_OF_5 {
            check(&format!("{a}, {b}"), &tensor);
            for c in ITEMS_OF_5 {
                check(&format!("{a}, {b}, {c}"), &tensor);
            }
        }
    }
}

#[test]
fn views_are_read_and_written() {
    let views = [
        counted(&[4, 5, 6]).transpose(0, 2).unwrap().narrow(0, 1, 5).unwrap().narrow(2, 0, 4).unwrap(),
        counted(&[7, 5, 6]).narrow(0, 1, 5).unwrap().narrow(2, 1, 5).unwrap(),
        counted(&[1, 5, 1]).broadcast_as((5, 5, 5)).unwrap(),
    ];
    for view in views {
        for text in ["0", ":, -1", "1:3, 2", ":, ::2", ":, :, 1", "1:3, 1:3, 1:3", ":", "::2, ::2, 1", "*"] {
            check(text, &view);
        }
    }
}

#[test]
fn dimensions_of_size_1() {
    for text in ["0", ":, -1", "0, 0, 0", "0:1, 2, 0:1", "-1, ::2", ":, 0:2, 0", "::3"] {
        check(text, &counted(&[1, 3, 1]));
    }
}

#[test]
fn empty_dimensions() {
    for text in [":", ":, 1", ":, 1:3", ":, ::2"] {
        check(text, &counted(&[0, 4]));
    }
    let error = index("*").elements("x", &[0]).unwrap_err();
    assert!(error.to_string().contains("dimension 0 is empty"), "{error}");
}

#[test]
fn scalars() -> Result<()> {
    let scalar = Tensor::new(3f32, &Device::Cpu)?;
    assert_eq!(index("...").read("x", &scalar)?.to_scalar::<f32>()?, 3.);
    let new = Tensor::new(4f32, &Device::Cpu)?;
    assert_eq!(index("...").write("x", &scalar, &new)?.to_scalar::<f32>()?, 4.);
    assert!(index("0").read("x", &scalar).is_err());
    Ok(())
}

#[test]
fn every_dtype() -> Result<()> {
    let dtypes = [DType::F16, DType::BF16, DType::F32, DType::F64, DType::U8, DType::U32, DType::I64];
    for dtype in dtypes {
        let tensor = counted(&[2, 3, 4]).to_dtype(dtype)?;
        for text in ["0", ":, -1", "1, 1:3", ":, :, ::2", "::1, ::2, 1"] {
            let index = index(text);
            let part = index.read("x", &tensor)?;
            let same = index.write("x", &tensor, &part)?;
            assert_eq!(numbers(&same), numbers(&tensor), "{dtype:?} [{text}]");
            if dtype.is_float() {
                check(text, &tensor);
            }
        }
    }
    Ok(())
}

#[test]
fn ellipsis_stands_for_what_is_left() -> Result<()> {
    let tensor = counted(&[2, 3, 4]);
    for (short, long) in
        [("...", ":, :, :"), ("..., 1", ":, :, 1"), ("1, ..., 2", "1, :, 2"), ("1, 2, 3, ...", "1, 2, 3")]
    {
        let (short, long) = (index(short), index(long));
        assert_eq!(numbers(&short.read("x", &tensor)?), numbers(&long.read("x", &tensor)?));
        let part = long.read("x", &tensor)?.neg()?;
        assert_eq!(numbers(&short.write("x", &tensor, &part)?), numbers(&long.write("x", &tensor, &part)?));
    }
    assert_eq!(numbers(&index("0, ..., 1, 2").read("x", &tensor)?), [6.]);
    Ok(())
}

#[test]
fn each_gives_the_product_in_row_major_order() -> Result<()> {
    let texts = |text: &str, shape: &[usize]| -> Result<Vec<String>> {
        Ok(index(text).elements("x", shape)?.iter().map(Index::to_string).collect())
    };
    assert_eq!(texts("*", &[3, 9])?, ["0", "1", "2"]);
    assert_eq!(texts("*, -1, *", &[2, 5, 2])?, ["0, -1, 0", "0, -1, 1", "1, -1, 0", "1, -1, 1"]);
    assert_eq!(texts("..., *", &[7, 2])?, ["..., 0", "..., 1"]);
    assert_eq!(texts("*, ...", &[2])?, ["0, ...", "1, ..."]);
    assert_eq!(texts("0:4, 1", &[5, 2])?, ["0:4, 1"]);
    assert!(index("*").has_each() && !index("0, ...").has_each());
    Ok(())
}

#[test]
fn reading_ints_and_ranges_makes_no_copy() -> Result<()> {
    let tensor = counted(&[4, 4]);
    let part = index("1:3").read("x", &tensor)?;
    tensor.slice_set(&Tensor::full(9f32, (4, 4), &Device::Cpu)?, 0, 0)?;
    assert_eq!(numbers(&part), [9.; 8]);
    Ok(())
}

#[test]
fn what_is_written_shares_no_memory() -> Result<()> {
    for text in [":", "0:4", "1"] {
        let tensor = counted(&[4, 4]);
        let part = index(text).read("x", &tensor)?.force_contiguous()?;
        let written = index(text).write("x", &tensor, &part)?;
        let before = numbers(&written);
        tensor.slice_set(&Tensor::full(9f32, (4, 4), &Device::Cpu)?, 0, 0)?;
        part.slice_set(&Tensor::full(9f32, part.dims(), &Device::Cpu)?, 0, 0)?;
        assert_eq!(numbers(&written), before, "[{text}]");
    }
    Ok(())
}

#[test]
fn gradients_reach_both_arguments() -> Result<()> {
    for text in ["0", ":, -1", "1:2, 1:3", ":, ::2", "::2, 1, 1:4:2", ":", "0, 0, 0"] {
        let index = index(text);
        let tensor = Var::from_tensor(&counted(&[3, 4, 5]))?;
        let part = Var::from_tensor(&index.read("x", &tensor)?.zeros_like()?)?;
        // The loss weighs each element by its position, so a gradient tells where it came from.
        let weights = counted(&[3, 4, 5]).affine(1., 1.)?;
        let grads = (index.write("x", &tensor, &part)? * &weights)?.sum_all()?.backward()?;

        let part_grad = grads.get(&part).unwrap();
        assert_eq!(numbers(part_grad), numbers(&index.read("x", &weights)?), "[{text}]");
        let kept = index.write("x", &weights, &part.as_detached_tensor())?;
        match grads.get(&tensor) {
            Some(grad) => assert_eq!(numbers(grad), numbers(&kept), "[{text}]"),
            None => assert!(numbers(&kept).iter().all(|&n| n == 0.), "[{text}]"),
        }

        let read = (index.read("x", &tensor)?.sum_all()? * 2.)?.backward()?;
        let taken: Vec<f32> = numbers(read.get(&tensor).unwrap());
        assert_eq!(taken.iter().sum::<f32>(), 2. * part.elem_count() as f32, "[{text}]");
    }
    Ok(())
}

#[test]
fn a_part_of_another_shape_or_dtype_is_refused() {
    let tensor = counted(&[2, 3]);
    let error = index(":, 0").write("a.b", &tensor, &counted(&[2, 1])).unwrap_err();
    let ErrorKind::Shape { expected, found, .. } = error.kind() else { panic!("{error:?}") };
    assert_eq!((expected, found), (&vec![2], &vec![2, 1]));
    let half = counted(&[2]).to_dtype(DType::F16).unwrap();
    let error = index(":, 0").write("a.b", &tensor, &half).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DType { .. }));
}

/// `name: index, shape => part of the reason`.
macro_rules! out_of_range {
    ($($name:ident: $text:expr, $shape:expr => $reason:expr;)*) => {$(
        #[test]
        fn $name() {
            let index = index($text);
            let error = index.selected_shape("a.b", &$shape).unwrap_err();
            let ErrorKind::IndexOutOfRange { point, index: text, shape, reason } = error.kind() else {
                panic!("{error:?}")
            };
            assert_eq!((point.as_str(), text.as_str()), ("a.b", $text));
            assert_eq!(shape.as_slice(), $shape.as_slice());
            assert!(reason.contains($reason), "{error}");
            assert!(index.elements("a.b", &$shape).is_err());
        }
    )*};
}

out_of_range! {
    int: "3", [3] => "dimension 0 has size 3; write -3 to 2, not 3";
    negative_int: ":, -4", [9, 3] => "dimension 1 has size 3; write -3 to 2, not -4";
    int_of_an_empty_dimension: "0", [0] => "dimension 0 is empty";
    smallest_int: "-9223372036854775808", [3] => "write -3 to 2";
    largest_int: "9223372036854775807", [3] => "write -3 to 2";
    end: "0:4", [3] => "dimension 0 has size 3; write -3 to 3 or nothing, not 4";
    start: "4:", [3] => "write -3 to 3 or nothing, not 4";
    negative_start: "-4:", [3] => "write -3 to 3 or nothing, not -4";
    empty_range: "1:1", [3] => "`1:1` holds nothing of dimension 0";
    empty_range_at_the_end: "3:", [3] => "`3:` holds nothing";
    reversed_range: "2:1", [3] => "write a start below the end";
    step_of_an_empty_dimension: "::2", [0] => "`::2` holds nothing";
    too_many_items: "0, 0, 0", [3] => "3 items are too many for rank 1; leave 2 of them out";
    too_many_items_with_ellipsis: "0, ..., 0", [3] => "2 items are too many for rank 1";
    after_ellipsis: "..., 5", [2, 3] => "dimension 1 has size 3";
}

#[test]
fn the_largest_step_takes_the_first_place() {
    check("0:3:9223372036854775807", &counted(&[3, 2]));
}
