//! The documents name things that exist.

use std::fs;
use std::path::{Path, PathBuf};

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

#[test]
fn each_test_that_the_guarantees_name_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "tests"] {
        sources(&root.join(folder), &mut files);
    }
    let code: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let guarantees = fs::read_to_string(root.join("docs/guarantees.md")).unwrap();
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
fn each_file_that_the_documents_link_to_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for document in ["README.md", "docs/design.md", "docs/format.md", "docs/guarantees.md", "docs/benchmarks.md"] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if !link.contains("://") {
                let file = root.join(document).with_file_name(link.split('#').next().unwrap_or(link));
                assert!(file.exists(), "{document} links to {link}");
            }
        }
    }
}
