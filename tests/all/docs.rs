//! The documents name things that exist, and what they show is run: Rust as doctests of src/lib.rs, the rest here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[cfg(feature = "cli")]
use loaderx::{DenseDataset, export_npy};

/// Blocks that nothing here runs, by their document and first line, each with its reason.
const NOT_RUN: [(&str, &str, &str); 7] = [
    ("README.md", "cargo run --release --example mnist --features burn-flex", "builds Burn: .ci/run runs it"),
    ("README.md", "cargo test", "it is what runs this"),
    (
        "docs/benchmarks.md",
        "cargo run --release --manifest-path benches/compare/Cargo.toml --features burn,candle -- --data DIR > results.json",
        "takes minutes, and arrays that another script makes",
    ),
    (
        "docs/scale.md",
        "cargo test --release --lib block_shuffle_table -- --ignored --nocapture",
        "builds all again; a test holds the figures",
    ),
    (
        "docs/scale.md",
        "cargo run --release --manifest-path benches/compare/Cargo.toml --features remote --bin remote -- --local store --url http://127.0.0.1:8080/store --cache cache",
        "takes minutes, and a server of a large store",
    ),
    ("CONTRIBUTING.md", "cargo test", "it is what runs this"),
    ("CONTRIBUTING.md", "bash .ci/run", "takes many minutes, and runs this"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: impl AsRef<Path>) -> String {
    let path = root().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All Rust files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The Markdown files of the root and of docs/, by their path from the root.
fn documents() -> Vec<String> {
    let mut documents = Vec::new();
    for folder in ["", "docs/"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                documents.push(format!("{folder}{name}"));
            }
        }
    }
    documents.sort();
    assert!(documents.len() >= 9, "{documents:?}");
    documents
}

/// A fenced block.
struct Block {
    document: String,
    language: String,
    text: String,
}

/// The fenced blocks of a document, and the text around them.
fn blocks(document: &str) -> (Vec<Block>, String) {
    let (mut blocks, mut text, mut open) = (Vec::new(), String::new(), None::<Block>);
    for line in read(document).lines() {
        match (open.take(), line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(Block { document: document.into(), language: language.into(), text: String::new() });
            }
            (None, None) => text += &format!("{line}\n"),
            (Some(block), Some(_)) => blocks.push(block),
            (Some(mut block), None) => {
                block.text += &format!("{line}\n");
                open = Some(block);
            }
        }
    }
    assert!(open.is_none(), "{document} ends within a block");
    (blocks, text)
}

impl Block {
    fn first_line(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }

    fn is_not_run(&self) -> bool {
        NOT_RUN.iter().any(|(document, line, _)| *document == self.document && *line == self.first_line())
    }

    /// The commands of a block of `loaderx` commands alone. In `text`, what a command does stands behind two spaces.
    fn commands(&self) -> Option<Vec<&str>> {
        let explained = match self.language.as_str() {
            "sh" => false,
            "text" => true,
            _ => return None,
        };
        let command = |line: &'_ str| if explained { line.find("  ").unwrap_or(line.len()) } else { line.len() };
        let commands: Vec<&str> = self.text.lines().map(|line| &line[..command(line)]).collect();
        let is_ours = |line: &&str| line.starts_with("loaderx ") || line.contains("| loaderx ");
        commands.iter().all(is_ours).then_some(commands)
    }
}

#[test]
fn each_code_block_is_run_or_is_listed_with_its_reason() {
    let doctests = read("src/lib.rs");
    let blocks: Vec<Block> = documents().iter().flat_map(|document| blocks(document).0).collect();
    for block in &blocks {
        let Block { document, language, text } = block;
        let run = match language.as_str() {
            "rust" => doctests.contains(&format!("include_str!(\"../{document}\")")),
            "python" | "toml" => true,
            _ => block.commands().is_some(),
        };
        assert!(run != block.is_not_run(), "{document}: run, or in NOT_RUN with a reason: ```{language}\n{text}```");
    }
    for (document, line, reason) in NOT_RUN {
        let is_there = blocks.iter().any(|block| block.document == document && block.first_line() == line);
        assert!(is_there && !reason.is_empty(), "{document} has no block that begins with {line:?}");
    }
}

/// In one directory a document, block after block, as a reader would.
#[cfg(feature = "cli")]
#[test]
fn the_commands_of_the_documents_do_what_they_say() {
    let programs = Path::new(env!("CARGO_BIN_EXE_loaderx")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(programs.into()).chain(std::env::split_paths(&path))).unwrap();
    let python = std::env::var_os("LOADERX_PYTHON");
    let mut done = 0;
    for document in documents() {
        let directory = arrays();
        for block in blocks(&document).0.iter().filter(|block| !block.is_not_run()) {
            let mut command = match (block.commands(), block.language.as_str(), &python) {
                (Some(commands), _, _) => {
                    let mut shell = Command::new("sh");
                    shell.args(["-euc", &commands.join("\n")]);
                    shell
                }
                (None, "python", Some(python)) => {
                    let mut python = Command::new(python);
                    python.args(["-c", &block.text]);
                    python
                }
                (None, "python", None) => {
                    println!("skipped: LOADERX_PYTHON is not set");
                    continue;
                }
                _ => continue,
            };
            let output = command.env("PATH", &path).current_dir(&directory).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{document}: {said}\n{}", block.text);
            done += 1;
        }
    }
    assert!(done >= 2, "only {done} blocks");
}

/// What the commands take: images.npy and labels.npy, as the guide makes them, and some files of text and bytes.
#[cfg(feature = "cli")]
fn arrays() -> tempfile::TempDir {
    let (directory, stores) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let images = DenseDataset::<u8, [usize; 2]>::create(stores.path().join("images"), [28, 28]).unwrap();
    images.append(&(0..600 * 28 * 28).map(|i| (i / 100 % 256) as u8).collect::<Vec<_>>()).unwrap();
    let labels = DenseDataset::<i64, ()>::create(stores.path().join("labels"), ()).unwrap();
    labels.append(&(0..600).map(|i| i % 10).collect::<Vec<_>>()).unwrap();
    for name in ["images", "labels"] {
        export_npy(stores.path().join(name), directory.path().join(name).with_extension("npy")).unwrap();
    }
    export_npy(stores.path().join("labels"), directory.path().join("huge.npy")).unwrap();
    for name in ["part-1.txt", "part-2.txt", "more.txt", "log.txt", "jpegs/1.jpeg", "jpegs/2.jpeg"] {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("a line\nand another one of {name}\n")).unwrap();
    }
    directory
}

/// Cargo takes what stands in `toml`, with this crate where the path says, and finds all versions and features.
#[test]
fn the_dependencies_of_the_documents_resolve() {
    let mut done = 0;
    for document in documents() {
        for block in blocks(&document).0.iter().filter(|block| block.language == "toml") {
            let package = tempfile::tempdir().unwrap();
            assert!(block.text.contains("../loaderx"), "{}", block.text);
            let dependencies = block.text.replace("../loaderx", root().to_str().unwrap());
            let manifest = format!("[package]\nname = \"reader\"\nedition = \"2024\"\n{dependencies}\n[workspace]\n");
            fs::write(package.path().join("Cargo.toml"), manifest).unwrap();
            fs::create_dir(package.path().join("src")).unwrap();
            fs::write(package.path().join("src/lib.rs"), "").unwrap();
            fs::copy(root().join("Cargo.lock"), package.path().join("Cargo.lock")).unwrap();
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["metadata", "--offline", "--format-version", "1"]).current_dir(&package);
            let output = cargo.output().unwrap();
            assert!(output.status.success(), "{document}: {}", String::from_utf8_lossy(&output.stderr));
            done += 1;
        }
    }
    assert!(done >= 1);
}

#[test]
fn each_test_that_the_guarantees_name_is_there() {
    let mut files = Vec::new();
    for folder in ["src", "tests"] {
        sources(&root().join(folder), &mut files);
    }
    let code: String = files.iter().map(read).collect();
    let guarantees = read("docs/guarantees.md");
    // The last column of the table of promises.
    let named: Vec<&str> = guarantees
        .lines()
        .skip_while(|line| !line.starts_with("| promise"))
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| line.trim_end_matches(" |").rsplit(" | ").next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    assert!(named.len() > 40, "only {} names", named.len());
    for name in named {
        let is_test = ["(", "<"].iter().any(|open| code.contains(&format!("fn {name}{open}")));
        assert!(is_test || code.contains(&format!("mod {name};")), "{name} is no test and no module");
    }
}

#[test]
fn each_place_that_the_documents_link_to_is_there() {
    let mut links = 0;
    for document in documents() {
        let text = blocks(&document).1;
        let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let defined = text.lines().filter(|line| line.starts_with('[')).filter_map(|line| line.split_once("]: "));
        for link in inline.chain(defined.map(|(_, link)| link)).filter(|link| !link.contains("://")) {
            let (file, section) = link.split_once('#').map_or((link, None), |(file, section)| (file, Some(section)));
            let file = match file {
                "" => PathBuf::from(&document),
                file => Path::new(&document).with_file_name(file),
            };
            assert!(root().join(&file).exists(), "{document} links to {link}");
            if let Some(section) = section {
                let text = blocks(file.to_str().unwrap()).1;
                let mut headings = text.lines().filter(|line| line.starts_with('#')).map(anchor);
                assert!(headings.any(|heading| heading == section), "{document} links to {link}");
            }
            links += 1;
        }
    }
    assert!(links > 20, "only {links} links");
}

/// What a link to a heading says.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    heading.chars().filter(|letter| letter.is_alphanumeric() || *letter == '-').collect()
}

#[test]
fn the_guide_says_what_to_do_about_each_error() {
    let code = read("src/error.rs");
    let variants = code.split("pub enum Error {").nth(1).unwrap().split("\n}").next().unwrap();
    let names = variants
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(char::is_uppercase));
    let names: Vec<&str> = names.map(|line| line.split([' ', '(', ',']).next().unwrap()).collect();
    assert!(names.len() >= 18, "{names:?}");
    let guide = read("docs/guide.md");
    let table = guide.split("| variant |").nth(1).unwrap().split("\n\n").next().unwrap();
    for name in names {
        assert!(table.contains(&format!("`{name}`")), "docs/guide.md does not say what to do about Error::{name}");
    }
}

#[test]
fn readme_and_the_crate_page_list_the_features_of_the_manifest() {
    let manifest = read("Cargo.toml");
    let section = manifest.split("[features]").nth(1).unwrap().split("\n[").next().unwrap();
    let features: Vec<&str> = section.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name).collect();
    assert!(features.len() >= 6, "{features:?}");
    for file in ["README.md", "src/lib.rs"] {
        let text = read(file);
        for feature in features.iter().filter(|feature| **feature != "default") {
            assert!(text.contains(&format!("| `{feature}` |")), "{file} does not list the feature {feature}");
        }
    }
}

#[test]
fn the_documents_and_the_manifest_agree_on_versions() {
    let rust = env!("CARGO_PKG_RUST_VERSION");
    for document in ["README.md", "CONTRIBUTING.md"] {
        assert!(read(document).contains(&format!("Rust {rust}")), "{document} does not say Rust {rust}");
    }
    let version = env!("CARGO_PKG_VERSION");
    let changes = read("CHANGELOG.md");
    let latest = changes.lines().find(|line| line.starts_with("## ")).unwrap();
    assert!(latest.starts_with(&format!("## {version}")), "CHANGELOG.md begins with {latest}, not with {version}");
}
