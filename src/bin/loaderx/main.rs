//! The command line: files into stores, what a store holds, whether it is whole, and stores back into files.
//!
//! Exit status: 0 when all is done; 1 with one line on standard error that says what went wrong, where, and what to do;
//! 2 for a command line that is not understood; 130 where Ctrl-C ended the work. Standard output carries the result alone.

#[macro_use]
mod compression;

mod append;
mod bench;
mod compact;
mod completions;
mod delete;
mod export;
mod import;
mod info;
mod interrupt;
mod output;
mod plan;
#[cfg(feature = "remote")]
mod push;
mod range;
mod recode;
mod repair;
mod sheet;
mod show;
mod sources;
mod stats;
mod train_dict;
mod trial;
mod values;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Record stores for machine learning: import, look at, measure, change, verify, export.
#[derive(Debug, Parser)]
#[command(name = "loaderx", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Import(import::Arguments),
    Append(append::Arguments),
    Info(info::Arguments),
    Show(show::Arguments),
    Stats(stats::Arguments),
    Export(export::Arguments),
    Recode(recode::Arguments),
    Delete(delete::Arguments),
    Compact(compact::Arguments),
    Verify(verify::Arguments),
    Repair(repair::Arguments),
    TrainDict(train_dict::Arguments),
    Bench(bench::Arguments),
    Plan(plan::Arguments),
    #[cfg(feature = "remote")]
    Push(push::PushArguments),
    #[cfg(feature = "remote")]
    Pull(push::PullArguments),
    Completions(completions::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Import(arguments) => import::run(arguments),
        Command::Append(arguments) => append::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Show(arguments) => show::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Delete(arguments) => delete::run(&arguments),
        Command::Compact(arguments) => compact::run(&arguments),
        Command::TrainDict(arguments) => train_dict::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        #[cfg(feature = "remote")]
        Command::Push(arguments) => push::push(&arguments),
        #[cfg(feature = "remote")]
        Command::Pull(arguments) => push::pull(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Recode(arguments) => recode::run(arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Repair(arguments) => repair::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(&error.to_string());
            match error.downcast_ref() {
                Some(loaderx::Error::Interrupted { .. }) => ExitCode::from(interrupt::STATUS),
                _ => ExitCode::FAILURE,
            }
        }
    }
}
