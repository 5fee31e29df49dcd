//! What was kept, and where.

use std::fmt::Write;

use super::screen::Screen;
use super::{plural, size, words};
use crate::commands::cache::Saved;

/// The values of a prompt, and the files.
pub fn text(saved: &Saved, screen: &Screen) -> String {
    let mut text = screen.opening(&saved.model) + "\n";
    let meaning = match saved.prompts {
        1 => "Point by point, in the order in which the model computed them.".to_string(),
        many => format!("Of the first of {many} prompts, in the order in which the model computed them."),
    };
    text += &screen.heading("Activations", &meaning);
    let largest = saved.values.iter().map(|value| value.bytes).max().unwrap_or(1).max(1);
    for value in &saved.values {
        let times = if value.calls > 1 { format!(" × {}", value.calls) } else { String::new() };
        let shape = format!("{:?} {}{times}", value.shape, value.dtype);
        let bar = "█".repeat((8 * value.bytes).div_ceil(largest));
        let name = if value.name.is_empty() { "(the model)" } else { &value.name };
        let line = format!(
            "  {}  {} {:>9}  {}",
            words::padded(&words::visible(name), 30),
            words::padded(&shape, 24),
            size(value.bytes as u64),
            screen.accent(&bar)
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let files = match saved.files.as_slice() {
        [one] => one.display().to_string(),
        several => plural(several.len(), "file"),
    };
    let _ = writeln!(
        text,
        "\n{} of {}, {}, in {}",
        plural(saved.tensors, "tensor"),
        plural(saved.prompts, "prompt"),
        size(saved.bytes as u64),
        screen.bold(&files)
    );
    if let ([file], Some(value)) = (saved.files.as_slice(), saved.values.first()) {
        let (file, name) =
            (file.display().to_string(), if saved.prompts == 1 { &value.name } else { "1.**" });
        let look_up = if saved.prompts == 1 { format!("[{name:?}]") } else { format!(".select({name:?})") };
        text.push('\n');
        text += &screen.note(&format!("in Rust    ActivationCache::load({file:?}, &device)?{look_up}"));
        text += &screen.note(&format!("in Python  safetensors.torch.load_file({file:?})"));
    }
    text
}
