//! Lines for whoever runs the command. A reader that has gone (`sim list | head`) ends the command in peace.

use std::{
    fmt,
    io::{ErrorKind, Write as _},
};

/// Prints a line, as `println!` does.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => {
        $crate::say::line(format_args!($($arg)*))
    };
}

pub fn line(text: fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}")
        && error.kind() == ErrorKind::BrokenPipe
    {
        std::process::exit(0);
    }
}
