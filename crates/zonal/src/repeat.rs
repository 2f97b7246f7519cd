//! How to repeat a random test: `SEED` in the environment chooses its random numbers, and `COUNT`
//! how much it tries. A test prints its seed, and does the same again with that seed.

use std::env;
use std::str::FromStr;

/// `SEED`, or `default`. Prints it, so that the output of a failed test says how to repeat it.
///
/// # Panics
///
/// `SEED` is no number.
#[expect(clippy::print_stdout, reason = "tests show it when they fail")]
pub fn seed(default: u64) -> u64 {
    let seed = given("SEED").unwrap_or(default);
    println!("SEED={seed}");
    seed
}

/// `COUNT`, or `default`. Each test documents the things that it counts.
///
/// # Panics
///
/// `COUNT` is no number, or too large for `T`.
pub fn count<T: FromStr>(default: T) -> T {
    given("COUNT").unwrap_or(default)
}

fn given<T: FromStr>(name: &str) -> Option<T> {
    env::var_os(name).map(|text| parse(name, &text.to_string_lossy()))
}

fn parse<T: FromStr>(name: &str, text: &str) -> T {
    let what = std::any::type_name::<T>();
    text.parse().unwrap_or_else(|_| panic!("{name} in the environment is no {what}: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeat_takes_number_of_any_size() {
        assert_eq!(parse::<u64>("SEED", "18446744073709551615"), u64::MAX);
        assert_eq!(parse::<u32>("COUNT", "0"), 0);
    }

    #[test]
    fn repeat_without_variable_leaves_default() {
        assert_eq!(given::<u64>("ZONAL_NO_SUCH_VARIABLE"), None);
    }

    #[test]
    #[should_panic(expected = "SEED in the environment is no u64: \"1x\"")]
    fn repeat_refuses_malformed_seed() {
        parse::<u64>("SEED", "1x");
    }

    #[test]
    #[should_panic(expected = "COUNT in the environment is no u32: \"4294967296\"")]
    fn repeat_refuses_count_too_large() {
        parse::<u32>("COUNT", "4294967296");
    }
}
