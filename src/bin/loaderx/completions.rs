//! `loaderx completions`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::output::{self, Result};

/// Print a script that makes a shell complete this program's commands and options.
#[derive(Debug, clap::Args)]
#[command(after_help = "For this session, or in the shell's own start-up file:
  bash: source <(loaderx completions bash)
  zsh:  source <(loaderx completions zsh)
  fish: loaderx completions fish | source")]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Arguments::command(), "loaderx", &mut script);
    output::result(&String::from_utf8(script)?)
}
