//! Calls that panic: whoever waits for the answer gets an error, and all others are served on.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a call returns, or the message with which it has panicked.
///
/// What it has changed by then may be half done. The caller has to see to it that nobody relies on
/// that.
pub fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| message(&*payload))
}

/// The text of a panic.
fn message(payload: &(dyn Any + Send)) -> String {
    let fixed = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let made = || payload.downcast_ref::<String>().cloned();
    fixed.or_else(made).unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(caught(|| 7), Ok(7));
        let number = 8;
        assert_eq!(caught(|| -> u8 { panic!("number {number}") }), Err("number 8".to_owned()));
        assert_eq!(caught(|| -> u8 { panic!("fixed") }), Err("fixed".to_owned()));
        let odd = caught(|| std::panic::panic_any(7));
        assert_eq!(odd, Err::<(), _>("a panic without a message".to_owned()));
    }
}
