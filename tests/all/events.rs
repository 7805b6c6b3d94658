//! What a subscriber of `tracing` is told.

use std::fmt;
use std::fs;
use std::sync::{Arc, Mutex};

use loaderx::{Codec, DataLoader, DenseDataset, Import, OnCorrupt, Store, Verify};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Level, Metadata, Subscriber};

/// Collects the crate's events of this thread: level, message and fields.
#[derive(Default, Clone)]
struct Collector(Arc<Mutex<Vec<(Level, String)>>>);

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "loaderx"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push((*event.metadata().level(), line.message + &line.fields));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields += &format!(" {name}={value:?}"),
        }
    }
}

/// The events of `run`.
fn events(run: impl FnOnce()) -> Vec<(Level, String)> {
    let collector = Collector::default();
    with_default(collector.clone(), run);
    collector.0.lock().unwrap().clone()
}

/// Holds events to a level and what each says, in order, one for one.
#[track_caller]
fn say(events: &[(Level, String)], wanted: &[(Level, &[&str])]) {
    let fits = |((level, line), (wanted, words)): (&(Level, String), &(Level, &[&str]))| {
        level == wanted && words.iter().all(|word| line.contains(word))
    };
    assert!(events.len() == wanted.len() && events.iter().zip(wanted).all(fits), "{events:#?}");
}

#[test]
fn a_store_tells_what_is_done_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let shown = format!("path={}", path.display());
    let told = events(|| {
        let mut store = Store::create(&path, Codec::Raw).unwrap();
        store.append(b"onetwothree", &[0, 3, 6, 11]).unwrap();
        store.sync().unwrap();
        store.sync().unwrap(); // nothing to do, nothing to say
        store.delete(&[1]).unwrap();
        store.compact().unwrap();
        store.gather(&[0, 1]).unwrap();
    });
    let wanted: [(Level, &[&str]); 4] = [
        (Level::DEBUG, &["a store is open", &shown, "records=0", "writable=true"]),
        (Level::DEBUG, &["a store was synced", &shown, "records=3"]),
        (Level::DEBUG, &["records were deleted", &shown, "records=2"]),
        (Level::DEBUG, &["a store was compacted", &shown]),
    ];
    say(&told, &wanted);
}

#[test]
fn what_a_killed_writer_left_is_told_when_it_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("store"), directory.path().join("copy"));
    let store = Store::create(&path, Codec::Raw).unwrap();
    store.append(b"onetwo", &[0, 3, 6]).unwrap();
    // What a kill would leave at this moment.
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(&path).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let told = events(|| assert_eq!(Store::open(&copy).unwrap().len(), 2));
    say(&told, &[(Level::DEBUG, &["a store is open", "records=2", "writable=false"])]);
    let told = events(|| drop(loaderx::StoreOptions::new().open_writable(&copy).unwrap()));
    let wanted: [(Level, &[&str]); 3] = [
        (Level::DEBUG, &["a store was synced", "records=2"]),
        (Level::INFO, &["a killed writer", "synced=0", "records=2"]),
        (Level::DEBUG, &["a store is open", "writable=true"]),
    ];
    say(&told, &wanted);
}

#[test]
fn a_loader_tells_how_it_begins_and_ends_what_fails_and_what_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows");
    let rows = DenseDataset::<u8, [usize; 1]>::options().codec(Codec::Raw).create(&path, [100]).unwrap();
    rows.append(&[7; 20 * 100]).unwrap();
    rows.close().unwrap();
    let open = || DenseDataset::<u8, [usize; 1]>::options().verify(Verify::Always).open(&path).unwrap();
    let begins: (Level, &[&str]) =
        (Level::DEBUG, &["a loader begins", "DataLoader { step: 0, mode: Cyclic", "workers: 0"]);

    let rows = open();
    let told = events(|| {
        let loader = DataLoader::builder(rows).batch_size(4).workers(0).build().unwrap();
        assert_eq!(loader.pass().count(), 5);
        assert_eq!(loader.take(2).count(), 2);
    });
    let wanted: [(Level, &[&str]); 4] = [
        begins,
        (Level::DEBUG, &["a pass begins", "Pass { done: 0, total: 5"]),
        (Level::DEBUG, &["a loader ends", "endless=false", "step=5", "metrics=5 steps, 20 records"]),
        (Level::DEBUG, &["a loader ends", "endless=true", "step=2", "metrics=2 steps, 8 records"]),
    ];
    say(&told, &wanted);

    let rows = open();
    let told = events(|| {
        let builder = DataLoader::builder(rows).batch_size(4).workers(0);
        let mut loader = builder.map(|_, _| -> Result<(), _> { panic!("at the third hurdle") }).build().unwrap();
        loader.seek(3);
        for _ in 0..2 {
            assert!(loader.next().unwrap().is_err());
        }
    });
    let failed: (Level, &[&str]) = (Level::ERROR, &["a step failed", "step=3", "at the third hurdle"]);
    say(&told, &[begins, failed, (Level::DEBUG, &["a loader ends", "metrics=0 steps"])]);

    let chunk = path.join("0.zr");
    let mut bytes = fs::read(&chunk).unwrap();
    bytes[7 * 100] ^= 1;
    fs::write(&chunk, bytes).unwrap();
    let rows = open();
    let told = events(|| {
        let builder = DataLoader::builder(rows).batch_size(20).workers(0).on_corrupt(OnCorrupt::Replace);
        assert!(builder.build().unwrap().next().unwrap().is_ok());
    });
    let replaced: (Level, &[&str]) = (Level::WARN, &["the place of a damaged one", "step=0", "record 7"]);
    say(&told, &[begins, replaced, (Level::DEBUG, &["a loader ends", "1 damaged records replaced"])]);
}

#[test]
fn an_import_tells_when_it_begins_and_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines");
    let told = events(|| {
        Import::new().records(["one", "three"], &path).unwrap();
    });
    let told: Vec<_> = told.into_iter().filter(|(level, _)| *level == Level::INFO).collect();
    let begins = format!("path={}", path.display());
    let wanted: [(Level, &[&str]); 2] = [
        (Level::INFO, &["an import begins", &begins, "in_place_of_a_killed_one=false"]),
        (Level::INFO, &["an import ends", "rows=2", "bytes=8"]),
    ];
    say(&told, &wanted);
}
