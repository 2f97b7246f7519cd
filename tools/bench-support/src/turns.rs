//! The order in which subjects are measured.

/// Whether the first round counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmUp {
    /// One more round comes first, and its values are dropped.
    Round,
    /// The subjects are warm, or a round takes too long.
    None,
}

/// Measures `count` subjects in turns, and returns the values of each.
///
/// Every round measures each subject once and begins with another one, so that other load of the
/// machine slows all of them alike. A turn that has nothing to measure returns `None`.
pub fn interleave<T>(
    rounds: usize,
    count: usize,
    warm_up: WarmUp,
    mut turn: impl FnMut(usize) -> Option<T>,
) -> Vec<Vec<T>> {
    let mut found: Vec<Vec<T>> = (0..count).map(|_| Vec::new()).collect();
    let first = usize::from(warm_up == WarmUp::None);
    for round in first..=rounds {
        for nth in 0..count {
            let at = (round + nth) % count;
            let value = turn(at);
            if round > 0 {
                found[at].extend(value);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_begin_with_another_subject_and_the_warm_up_is_dropped() {
        let mut order = Vec::new();
        let found = interleave(2, 3, WarmUp::Round, |at| {
            order.push(at);
            (at != 1).then_some(order.len())
        });
        assert_eq!(order, [0, 1, 2, 1, 2, 0, 2, 0, 1]);
        assert_eq!(found, [vec![6, 8], vec![], vec![5, 7]]);
        let found = interleave(2, 1, WarmUp::None, |_| Some(()));
        assert_eq!(found[0].len(), 2);
    }
}
