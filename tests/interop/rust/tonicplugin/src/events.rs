//! What the program tells: one JSON object a line on stdout.

use std::io::{stdout, Write};

use serde_json::Value;

/// Prints an event with its fields, which must be an object.
pub fn emit(event: &str, mut fields: Value) {
    fields["event"] = event.into();
    // Whoever read the events may be gone: then nobody misses them.
    let _ = writeln!(stdout().lock(), "{fields}");
}
