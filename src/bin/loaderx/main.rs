//! The command line: NumPy's files into stores, what a store holds, whether it is whole, and stores back into NumPy's
//! files.
//!
//! Exit status: 0 when all is done; 1 with one line on standard error that says what went wrong, where, and what to do;
//! 2 for a command line that is not understood. Standard output carries the result alone.

mod compression;
mod export;
mod import;
mod info;
mod output;
mod recode;
mod repair;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Record stores for machine learning: import, inspect, verify, export.
#[derive(Debug, Parser)]
#[command(name = "loaderx", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Import(import::Arguments),
    Info(info::Arguments),
    Export(export::Arguments),
    Recode(recode::Arguments),
    Verify(verify::Arguments),
    Repair(repair::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Import(arguments) => import::run(arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Recode(arguments) => recode::run(arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Repair(arguments) => repair::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(&error.to_string());
            ExitCode::FAILURE
        }
    }
}
