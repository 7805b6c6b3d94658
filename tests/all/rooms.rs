//! The source's rooms import what stands before them in the flow of data, and nothing else: see docs/design.md.
//!
//! The source is read as text, without its tests: all paths that begin with `crate` or `super`, and the names of crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What a room may name beside itself. The longest name that fits a module is its room; each adapter is one.
const ROOMS: [(&str, &[&str]); 10] = [
    ("error", &[]),
    ("events", &[]),
    ("engine", &["error", "events"]),
    ("engine::store", &["engine::remote", "error", "events"]),
    ("engine::remote", &["engine::store", "error", "events"]),
    ("engine::sampler", &["error"]),
    ("data", &["engine::store", "engine::remote::RemoteOptions", "error"]),
    ("loader", &["data", "engine::sampler", "engine::store::unsplit", "error", "events"]),
    ("adapters", &["data", "loader", "error"]),
    ("convert", &["data", "engine::remote", "engine::store::outline", "error", "events"]),
];

/// Crates that stay in one place.
const CRATES: [(&str, &str); 11] = [
    ("memmap2", "src/engine/store/"),
    ("zstd", "src/engine/store/"),
    ("object_store", "src/engine/remote/"),
    ("tokio", "src/engine/remote/"),
    ("safetensors", "src/convert/"),
    ("zip", "src/convert/"),
    ("ndarray", "src/adapters/ndarray.rs"),
    ("candle_core", "src/adapters/candle.rs"),
    ("burn", "src/adapters/burn.rs"),
    ("clap", "src/bin/"),
    ("tracing", "src/events.rs"),
];

const UNSAFE: [&str; 4] =
    ["src/data/buffer.rs", "src/engine/store/io.rs", "src/engine/store/map.rs", "src/engine/store/slot.rs"];

/// The text of each source file, by its path in the repository.
type Source = BTreeMap<String, String>;

fn source() -> Source {
    fn collect(folder: &Path, root: &Path, source: &mut Source) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, root, source);
            } else if path.extension() == Some("rs".as_ref()) {
                let name = path.strip_prefix(root).unwrap().components();
                let name: Vec<_> = name.map(|part| part.as_os_str().to_str().unwrap()).collect();
                source.insert(name.join("/"), fs::read_to_string(&path).unwrap());
            }
        }
    }
    let (root, mut source) = (PathBuf::from(env!("CARGO_MANIFEST_DIR")), Source::new());
    collect(&root.join("src"), &root, &mut source);
    source
}

#[test]
fn rooms_import_only_what_stands_before_them() {
    let source = source();
    assert!(source.len() > 40 && source.contains_key("src/lib.rs"));
    assert_eq!(faults(&source), [""; 0]);
}

/// A rule that nothing can break is none.
#[test]
fn each_rule_can_be_broken() {
    let good = source();
    for (path, line) in [
        ("src/engine/store/new.rs", "use crate::data::DType;"),
        ("src/engine/store/new.rs", "use super::super::sampler::Mode;"),
        ("src/engine/sampler/new.rs", "use crate::{DType, Error};"),
        ("src/data/new.rs", "use crate::engine::sampler::Mode;"),
        ("src/data/new.rs", "use crate::{\n    engine::{store::Codec, sampler},\n    error::Result,\n};"),
        ("src/data/new.rs", "fn f() { let x = 1; crate::loader::g(x) }"),
        ("src/loader/new.rs", "use crate::engine::store::Store;"),
        ("src/loader/new.rs", "use crate::adapters::ndarray::ArrayShape;"),
        ("src/loader/new.rs", "use super::super::convert::Import;"),
        ("src/adapters/new.rs", "use crate::engine::store::Codec;"),
        ("src/adapters/new.rs", "use super::ndarray::ArrayShape;"),
        ("src/adapters/new.rs", "use ndarray::Array2;"),
        ("src/data/new.rs", "use crate::events::event;"),
        ("src/engine/store/new.rs", "fn f() { tracing::info!(\"a line\") }"),
        ("src/convert/new.rs", "use crate::engine::store::Codec;"),
        ("src/convert/new.rs", "use crate::Stream;"),
        ("src/data/new.rs", "fn f(x: &zip::ZipArchive) {}"),
        ("src/bin/loaderx/new.rs", "#[path = \"../../data/mod.rs\"]\nmod data;"),
        ("src/loader/new.rs", "#[cfg(test)]\nmod tests {\n    fn f() { unsafe { g() } }\n}"),
        ("src/engine/new.rs", "use crate::nowhere::Thing;"),
    ] {
        let mut source = good.clone();
        source.insert(path.into(), line.into());
        assert_eq!(faults(&source).len(), 1, "{path}: {line}: {:?}", faults(&source));
    }
    for line in ["pub use data::*;", "pub mod data;", "pub use {data::DType, engine::*};"] {
        let mut source = good.clone();
        source.get_mut("src/lib.rs").unwrap().push_str(line);
        assert_eq!(faults(&source).len(), 1, "{line}");
    }
    for (path, line) in [
        ("src/convert/new.rs", "use crate::{Codec, Error};"),
        ("src/loader/new.rs", "use crate::engine::{sampler::Sampler, store::unsplit};"),
        (
            "src/data/new.rs",
            "//! crate::loader is a word here.\n#[cfg(test)]\nmod tests {\n    use crate::loader::Stream;\n}",
        ),
    ] {
        let mut source = good.clone();
        source.insert(path.into(), line.into());
        assert_eq!(faults(&source), [""; 0], "{path}: {line}");
    }
}

/// Each place where a rule is broken.
fn faults(source: &Source) -> Vec<String> {
    let root_names = root_names(source);
    let modules: BTreeSet<&str> = source.keys().filter_map(|path| module(path)?.into_iter().next()).collect();
    let tests = test_modules(source);
    let mut faults = Vec::new();
    for (path, text) in source {
        if words(&without_comments(text)).any(|word| word == "unsafe") && !UNSAFE.contains(&path.as_str()) {
            faults.push(format!("{path}: unsafe code"));
        }
        if path.starts_with("src/bin/") {
            if text.contains("#[path") || text.contains("include!") {
                faults.push(format!("{path}: includes a private file"));
            }
            continue;
        }
        let code = without_tests(&without_comments(text)).0;
        if path == "src/lib.rs" {
            faults.extend(public(&code).filter(|item| !is_list(item)).map(|item| format!("{path}: {item}")));
            continue;
        }
        let module = module(path).expect("files of src/bin were left out");
        if tests.iter().any(|test| module.starts_with(&test.iter().map(String::as_str).collect::<Vec<_>>())) {
            continue;
        }
        for (name, place) in CRATES {
            if !path.starts_with(place) && paths(&code, name).next().is_some() {
                faults.push(format!("{path}: names the crate {name}"));
            }
        }
        let named: BTreeSet<Vec<String>> = inner_paths(&code, &module).into_iter().collect();
        for named in named {
            let at_root = !modules.contains(named[0].as_str());
            let resolved = if at_root { root_names.get(&named[0]).cloned() } else { Some(named.clone()) };
            if !resolved.is_some_and(|resolved| may_name(&module, &resolved.join("::"), at_root)) {
                faults.push(format!("{path}: names {}", named.join("::")));
            }
        }
    }
    faults
}

/// Whether a module may name `path`; `at_root` where it does so by a name that the crate exports.
fn may_name(module: &[&str], path: &str, at_root: bool) -> bool {
    let module = module.join("::");
    let within =
        |path: &str, room: &str| path.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let room = ROOMS.iter().filter(|(room, _)| within(&module, room)).max_by_key(|(room, _)| room.len());
    let Some((room, others)) = room else { return false };
    let own = if *room == "adapters" { &module } else { *room };
    within(path, own)
        || others.iter().any(|other| within(path, other))
        || (at_root && *room == "convert" && within(path, "engine"))
}

/// Where each name that lib.rs exports lives.
fn root_names(source: &Source) -> BTreeMap<String, Vec<String>> {
    let code = without_tests(&without_comments(&source["src/lib.rs"])).0;
    let trees = code.split("pub use ").skip(1).flat_map(|tree| expand(tree.split(';').next().unwrap_or_default()));
    trees.map(|path| (path.last().expect("a path has a name").clone(), path)).collect()
}

/// The public items of lib.rs, each to its semicolon or brace.
fn public(code: &str) -> impl Iterator<Item = String> {
    code.split("pub ").skip(1).map(|item| format!("pub {}", item.split(';').next().unwrap_or_default()))
}

/// Whether it exports names, one by one, or is a chapter of the documentation: a module of a document and nothing else.
fn is_list(item: &str) -> bool {
    let chapter = item.strip_prefix("pub mod ").and_then(|rest| rest.split_once(" {"));
    chapter.is_some_and(|(_, body)| body.starts_with('}')) || (item.starts_with("pub use ") && !item.contains('*'))
}

/// The module that a file is, from the crate's root; `None` for a program.
fn module(path: &str) -> Option<Vec<&str>> {
    let path = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    let mut module: Vec<&str> = path.split('/').collect();
    if module[0] == "bin" {
        return None;
    }
    if matches!(module.last(), Some(&"mod" | &"lib")) {
        module.pop();
    }
    Some(module)
}

/// Modules with a file of their own that exist in tests alone.
fn test_modules(source: &Source) -> Vec<Vec<String>> {
    let mut modules = Vec::new();
    for (path, text) in source {
        let Some(parent) = module(path) else { continue };
        let parent: Vec<String> = parent.into_iter().map(str::to_owned).collect();
        let (_, tests) = without_tests(&without_comments(text));
        modules.extend(tests.into_iter().map(|name| [&parent[..], &[name]].concat()));
    }
    modules
}

fn without_comments(text: &str) -> String {
    let cut = |line: &'_ str| match line.find(" // ") {
        Some(at) => line[..at].to_owned(),
        None if line.trim_start().starts_with("//") => String::new(),
        None => line.to_owned(),
    };
    text.lines().map(|line| cut(line) + "\n").collect()
}

/// Formatted code without what stands under `#[cfg(test)]` or `#[cfg(all(test, …))]`, and the names of modules that are declared there.
fn without_tests(code: &str) -> (String, Vec<String>) {
    let (mut kept, mut modules) = (String::new(), Vec::new());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let tested = line.trim();
        if tested != "#[cfg(test)]" && !tested.starts_with("#[cfg(all(test,") {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let item = lines.by_ref().find(|line| !line.trim_start().starts_with("#[")).unwrap_or_default();
        if let Some(name) = item.trim().strip_prefix("mod ").and_then(|item| item.strip_suffix(';')) {
            modules.push(name.to_owned());
        } else if item.ends_with('{') {
            let end = format!("{}}}", &item[..item.len() - item.trim_start().len()]);
            lines.by_ref().find(|line| *line == end);
        }
    }
    (kept, modules)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c| !is_word(c))
}

/// What follows `first::` wherever a path begins with it, other than in `pub(in …)`.
fn paths<'a>(code: &'a str, first: &str) -> impl Iterator<Item = &'a str> {
    let start = format!("{first}::");
    let ends: Vec<usize> = code
        .match_indices(&start)
        .filter(|(at, _)| !code[..*at].ends_with(|c| is_word(c) || c == ':') && !code[..*at].ends_with("(in "))
        .map(|(at, _)| at + start.len())
        .collect();
    ends.into_iter().map(|end| &code[end..])
}

/// All paths that begin with `crate` or `super`, from the crate's root.
fn inner_paths(code: &str, module: &[&str]) -> Vec<Vec<String>> {
    let mut all: Vec<_> = paths(code, "crate").flat_map(expand).collect();
    let parent = &module[..module.len() - 1];
    for path in paths(code, "super").flat_map(expand) {
        let ups = path.iter().take_while(|name| *name == "super").count();
        let base = parent[..parent.len().saturating_sub(ups)].iter().map(|name| (*name).to_owned());
        all.push(base.chain(path[ups..].iter().cloned()).collect());
    }
    all.retain(|path| !path.is_empty());
    all
}

/// The paths of a tree as it stands behind `use`: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim_start();
    if let Some(group) = tree.strip_prefix('{') {
        let (mut depth, mut start, mut paths) = (0, 0, Vec::new());
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                ',' | '}' if depth == 0 => {
                    if !group[start..at].trim().is_empty() {
                        paths.extend(expand(&group[start..at]));
                    }
                    if c == '}' {
                        break;
                    }
                    start = at + 1;
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
        return paths;
    }
    let end = tree.find(|c| !is_word(c)).unwrap_or(tree.len());
    let (name, rest) = tree.split_at(end);
    let head = if name.is_empty() { vec![] } else { vec![name.to_owned()] };
    match rest.strip_prefix("::") {
        Some(rest) => expand(rest).into_iter().map(|path| [&head[..], &path].concat()).collect(),
        None => vec![head],
    }
}
