//! Catches panics, so that one failing call does not end the server.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns what `call` returns, or the message of its panic.
///
/// A panic may leave a change half done. The caller must make sure that nothing relies on it.
pub fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| message(&*payload))
}

/// The message of a panic.
fn message(payload: &(dyn Any + Send)) -> String {
    let fixed = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let made = || payload.downcast_ref::<String>().cloned();
    fixed.or_else(made).unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_its_message() {
        assert_eq!(caught(|| 7), Ok(7));
        let number = 8;
        assert_eq!(caught(|| -> u8 { panic!("number {number}") }), Err("number 8".to_owned()));
        assert_eq!(caught(|| -> u8 { panic!("fixed") }), Err("fixed".to_owned()));
        let odd = caught(|| std::panic::panic_any(7));
        assert_eq!(odd, Err::<(), _>("a panic without a message".to_owned()));
    }
}
