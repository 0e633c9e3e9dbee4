//! The events of the program: one JSON object per line on stdout.

use std::io::{stdout, Write};

use serde_json::Value;

/// Prints an event with its fields, which must be an object.
pub fn emit(event: &str, mut fields: Value) {
    fields["event"] = event.into();
    // A broken pipe: the reader of the events has exited.
    let _ = writeln!(stdout().lock(), "{fields}");
}
