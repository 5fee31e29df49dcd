//! Models from the Hugging Face hub.

use std::path::PathBuf;

use hf_hub::api::sync::{ApiBuilder, ApiError, ApiRepo};
use hf_hub::Cache;
use hookpoint::{Error, Result};

use super::checkpoint::{shards, INDEX};

/// The folder with the files of a model, after those that are missing have been downloaded.
pub fn fetch(name: &str) -> Result<PathBuf> {
    let part =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c));
    if name.split('/').count() > 2 || !name.split('/').all(part) {
        return Err(Error::msg(format!(
            "`{name}` is neither a folder nor the name of a model on the hub, as in `openai-community/gpt2`"
        )));
    }
    let api = ApiBuilder::from_env().with_progress(true).build();
    let repo = api.map_err(|error| unreachable_hub(name, "config.json", &error))?.model(name.to_string());
    let get = |file: &str| repo.get(file).map_err(|error| unreachable_hub(name, file, &error));

    let cached = |file: &str| Cache::from_env().model(name.to_string()).get(file);

    let was_there = cached("config.json").is_some();
    let config = get("config.json")?;
    let whole = match cached(INDEX) {
        Some(_) => None,
        None => optional(&repo, name, "model.safetensors")?,
    };
    if whole.is_none() {
        for file in shards(&get(INDEX)?)? {
            get(&file)?;
        }
    }
    match optional(&repo, name, "tokenizer.json") {
        // Whether there is one was found out when the rest was downloaded.
        Err(_) if was_there => {}
        other => drop(other?),
    }
    let folder = config.parent().map(PathBuf::from);
    folder.ok_or_else(|| Error::msg(format!("`{}` is in no folder", config.display())))
}

/// A file that need not be there.
fn optional(repo: &ApiRepo, name: &str, file: &str) -> Result<Option<PathBuf>> {
    match repo.get(file) {
        Ok(path) => Ok(Some(path)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(unreachable_hub(name, file, &error)),
    }
}

/// The type that knows the status is of a crate that hf-hub does not show.
fn is_not_found(error: &ApiError) -> bool {
    matches!(error, ApiError::RequestError(_)) && error.to_string().contains("404")
}

fn unreachable_hub(name: &str, file: &str, error: &ApiError) -> Error {
    let cache = Cache::from_env().path().display().to_string();
    let reason = match is_not_found(error) {
        true => "the hub has no such file; is the name right?".to_string(),
        false => error.to_string(),
    };
    Error::msg(format!(
        "cannot get `{file}` of `{name}` from the hub: {reason}\n  without a network, fetch config.json, \
         model.safetensors and tokenizer.json elsewhere, put them into a folder, and give that folder instead of the \
         name\n  what is in the cache, {cache}, is used without a network"
    ))
}
