use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use candle_core::DType;
use hookpoint_models::gpt2::Gpt2;

use crate::fixtures::{assert_close, device, expected, folder, Test};

/// Serves the checkpoints of the fixtures as the hub does, and counts requests. The name of a model is
/// `tests/CASE`.
fn serve() -> std::io::Result<(String, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}", listener.local_addr()?);
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = requests.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counter.fetch_add(1, Ordering::SeqCst);
            let _ = answer(stream);
        }
    });
    Ok((address, requests))
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let (mut start, mut end) = (0, usize::MAX);
    for line in lines {
        let line = line?.to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some((from, to)) = line.strip_prefix("range: bytes=").and_then(|range| range.split_once('-')) {
            (start, end) = (from.parse().unwrap(), to.parse().map_or(usize::MAX, |to: usize| to + 1));
        }
    }
    // GET /tests/base/resolve/main/config.json HTTP/1.1
    let parts: Vec<&str> = first.split(['/', ' ']).collect();
    let file = match parts.as_slice() {
        ["GET", "", "tests", case, "resolve", "main", file, ..] => {
            std::fs::read(folder(case).join(file)).ok()
        }
        _ => None,
    };
    let Some(file) = file else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    };
    let (end, all) = (end.min(file.len()), file.len());
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nx-repo-commit: abc\r\netag: \"{}\"\r\ncontent-length: {}\r\n\
         content-range: bytes {start}-{}/{all}\r\nconnection: close\r\n\r\n",
        parts[6],
        end - start,
        end - 1
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&file[start..end])
}

/// One test, because the place of the hub is in the environment, which all threads share.
#[test]
fn models_are_downloaded_once_and_without_a_network_the_error_says_what_to_do() -> Test {
    let cache = tempfile::tempdir()?;
    let (address, requests) = serve()?;
    std::env::set_var("HF_HOME", cache.path());
    std::env::set_var("HF_ENDPOINT", &address);
    for case in ["base", "shards"] {
        let expected = expected(case);
        let name = format!("tests/{case}");
        let model = Gpt2::from_hub(&name, DType::F32, &device())?;
        assert_close(case, &model.forward(&expected["ids"])?, &expected["logits"]);
        assert_eq!(model.tokenizer().is_ok(), case == "base");
    }
    let refused =
        |name: &str| Gpt2::from_hub(name, DType::F32, &device()).map(|_| ()).unwrap_err().to_string();
    let error = refused("tests/nothing");
    assert!(error.contains("`config.json` of `tests/nothing`") && error.contains("no such file"), "{error}");
    let error = refused("../../etc/passwd");
    assert!(error.contains("neither a folder nor the name of a model"), "{error}");

    // Nobody listens there.
    std::env::set_var("HF_ENDPOINT", "http://127.0.0.1:9");
    let before = requests.load(Ordering::SeqCst);
    Gpt2::from_hub("tests/base", DType::F32, &device())?;
    Gpt2::from_hub("tests/shards", DType::F32, &device())?;
    assert_eq!(requests.load(Ordering::SeqCst), before);
    let error = refused("tests/inner");
    for part in ["cannot get `config.json` of `tests/inner`", "without a network", "put them into a folder"] {
        assert!(error.contains(part), "{error}");
    }
    Ok(())
}
