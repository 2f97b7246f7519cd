//! Published formulas of write amplification, which counting mode is tested against.
//!
//! Everywhere `op` is (raw − user) / user of the flash in which data can rest
//! ([`Layout::op_effective`](crate::config::Layout::op_effective)), and α = 1 + `op` = raw / user.
//!
//! | function | policy, workload | after |
//! | --- | --- | --- |
//! | [`fifo`] | FIFO, and greedy with large superblocks; uniform | Xiang and Kurkoski 2012; Desnoyers 2012 |
//! | [`agarwal_marrow`] | greedy, a rough closed form; uniform | Agarwal and Marrow 2010 |
//! | [`random`] | random victims; uniform | Van Houdt 2013, with d = 1 |
//! | [`choices`] | the best of d random victims; uniform | Van Houdt 2013 |
//! | [`greedy`] | greedy with superblocks of any size; uniform | Van Houdt 2013, as d grows |
//! | [`fifo_classes`] | FIFO; addresses written at different rates | Desnoyers 2012; see there |
//! | [`separated`] | no policy does better without knowing the next write | Desnoyers 2012; see there |

/// Addresses that are all written at one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Share of the addresses.
    pub part: f64,
    /// Share of the writes that goes to them.
    pub share: f64,
}

/// Two classes: `part` of the addresses gets `share` of the writes.
pub fn hot_cold(part: f64, share: f64) -> Vec<Class> {
    vec![Class { part, share }, Class { part: 1.0 - part, share: 1.0 - share }]
}

/// Zipf's law: of `units` addresses, the k-th is written in proportion to k^−θ. Neighbours of
/// nearly the same rate, within a thousandth, form a class.
pub fn zipf(units: u32, theta: f64) -> Vec<Class> {
    let mut classes = Vec::new();
    let mut first = 1;
    while first <= units {
        let limit = (first + first / 1000 + 1).min(units.saturating_add(1));
        let count = f64::from(limit - first);
        // The middle of a class that is so narrow stands for all of it.
        let middle = f64::midpoint(f64::from(first), f64::from(limit - 1));
        classes.push(Class { part: count, share: count * middle.powf(-theta) });
        first = limit;
    }
    let (parts, shares) = classes
        .iter()
        .fold((0.0, 0.0), |(parts, shares), class| (parts + class.part, shares + class.share));
    let normed = |class: Class| Class { part: class.part / parts, share: class.share / shares };
    classes.into_iter().map(normed).collect()
}

/// FIFO under uniform writes, and the limit of [`greedy`] for large superblocks: the victim's
/// valid share is u = e^(−α (1 − u)), and A = 1 / (1 − u).
pub fn fifo(op: f64) -> f64 {
    amplification(1.0 + op)
}

/// A of [`fifo`] for α: solved the other way round it is α = −A ln(1 − 1/A), which falls in A.
fn amplification(alpha: f64) -> f64 {
    assert!(alpha > 1.0, "there is flash beyond the user's capacity: α = {alpha}");
    // Far below: A − 1 vanishes as e^−α. Far above: A tends to α / (2 (α − 1)).
    1.0 + falling(1e-300, 2.0 / (alpha - 1.0) + 2.0, |above| rest(1.0 + above, above) - alpha)
}

/// α for A, given A − 1 beside it for its digits.
fn rest(a: f64, above: f64) -> f64 {
    a * (a.ln() - above.ln())
}

/// (1 + OP) / (2 OP).
pub fn agarwal_marrow(op: f64) -> f64 {
    (1.0 + op) / (2.0 * op)
}

/// α / (α − 1).
pub fn random(op: f64) -> f64 {
    (1.0 + op) / op
}

/// The best of `d` random victims, superblocks of `b` units. The share `m_k` of superblocks with k
/// valid units does not change: for each victim, one with b is filled. A superblock leaves the
/// group with at least k as the victim itself, with probability `y_k`^d where `y_k` = Σ_{i≥k}
/// `m_i`, or because its k-th unit is overwritten: (α / A) k `m_k` of them.
pub fn choices(op: f64, b: u32, d: u32) -> f64 {
    let d = f64::from(d);
    solve(op, b, |rate, k, above| {
        falling(0.0, 1.0 - above, |m| 1.0 - (above + m).powf(d) - rate * k * m)
    })
}

/// Greedy, superblocks of `b` units: [`choices`] as d grows. A superblock is no victim while one
/// has fewer valid units, so `y_k`^d is 0 until the shares are used up.
pub fn greedy(op: f64, b: u32) -> f64 {
    solve(op, b, |rate, k, above| (1.0 / (rate * k)).min(1.0 - above))
}

/// Finds the rate α / A at which the shares, given by `share(rate, k, Σ_{i>k} m_i)` from k = b
/// down, hold the user's data: Σ k `m_k` = b / α.
fn solve(op: f64, b: u32, share: impl Fn(f64, f64, f64) -> f64) -> f64 {
    let alpha = 1.0 + op;
    let held = |rate: f64| {
        let (mut above, mut held) = (0.0, 0.0);
        for k in (1..=b).rev().map(f64::from) {
            let share = share(rate, k, above);
            above += share;
            held += k * share;
        }
        held
    };
    // A is at least 1, and at most the A of random victims.
    let rate = falling(op / 2.0, alpha, |rate| held(rate) - f64::from(b) / alpha);
    alpha / rate
}

/// FIFO, with any classes of addresses. A slot comes to the log's end T host writes after it was
/// filled; an address written at rate λ is programmed λ T / (1 − e^(−λ T)) times in that time, by
/// the host or because it was still valid at the end; together these fill the log. So T follows,
/// and A = raw / T: the characteristic time of a cache (Che, Tung and Wang 2002), applied to the
/// log.
pub fn fifo_classes(op: f64, classes: &[Class]) -> f64 {
    let alpha = 1.0 + op;
    // In drive writes: 1 address in `part` is written share / part times in one.
    let programmed = |time: f64| -> f64 {
        let of = |class: &Class| {
            let writes = class.share / class.part * time;
            class.part * if writes < 1e-12 { 1.0 } else { writes / -(-writes).exp_m1() }
        };
        classes.iter().map(of).sum()
    };
    alpha / falling(0.0, alpha, |time| alpha - programmed(time))
}

/// The least that is possible when each class has superblocks of its own and only its rate is
/// known: spare flash is divided so that Σ `share` A(α of the class) is least, which is where one
/// superblock more would gain as much in each class.
pub fn separated(op: f64, classes: &[Class]) -> f64 {
    let alpha = 1.0 + op;
    // The A − 1 of a class if moving a little flash is worth `price` = −(share / part) dA/dα.
    let above = |class: &Class, price: f64| {
        let slope = class.share / class.part / price;
        // −dα/dA = 1/(A − 1) − ln(1 + 1/(A − 1)) falls in A.
        let steep = |above: f64| 1.0 / above - (1.0 / above).ln_1p() - slope;
        falling(1e-300, 1e9, steep)
    };
    let flash = |price: f64| -> f64 {
        let of = |class: &Class| {
            let above = above(class, price);
            class.part * rest(1.0 + above, above)
        };
        classes.iter().map(of).sum()
    };
    let price = falling(1e-300, 1e18, |price| flash(price) - alpha);
    classes.iter().map(|class| class.share * (1.0 + above(class, price))).sum()
}

/// The zero of a falling function between two points, by bisection; geometric where they are far
/// apart.
fn falling(first: f64, last: f64, function: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (first, last);
    for _ in 0..200 {
        let middle = if low > 0.0 && high > 4.0 * low {
            low.sqrt() * high.sqrt()
        } else {
            f64::midpoint(low, high)
        };
        if middle <= low || middle >= high {
            break;
        }
        if function(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Agarwal, FIFO, greedy with 16, 64 and 256, 2, 5 and 10 choices with 64, random: computed
    /// once by another program, and agreeing with a third that simulates.
    const TABLE: [(f64, [&str; 9]); 7] = [
        (0.07, ["7.64", "7.817", "5.328", "7.010", "7.597", "10.28", "7.875", "7.323", "15.29"]),
        (0.10, ["5.50", "5.677", "4.334", "5.247", "5.562", "7.506", "5.831", "5.450", "11.00"]),
        (0.15, ["3.83", "4.016", "3.285", "3.800", "3.960", "5.312", "4.185", "3.930", "7.67"]),
        (0.20, ["3.00", "3.188", "2.717", "3.053", "3.153", "4.203", "3.343", "3.150", "6.00"]),
        (0.28, ["2.29", "2.481", "2.202", "2.403", "2.461", "3.245", "2.612", "2.471", "4.57"]),
        (0.50, ["1.50", "1.716", "1.585", "1.681", "1.707", "2.190", "1.806", "1.721", "3.00"]),
        (1.00, ["1.00", "1.255", "1.196", "1.239", "1.251", "1.526", "1.308", "1.261", "2.00"]),
    ];

    /// Compares as many digits as are given.
    fn agrees(value: f64, text: &str, what: &str) {
        let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
        assert_eq!(format!("{value:.digits$}"), text, "{what}");
    }

    #[test]
    fn theory_formulas_give_known_table() {
        for (op, row) in TABLE {
            let values = [
                agarwal_marrow(op),
                fifo(op),
                greedy(op, 16),
                greedy(op, 64),
                greedy(op, 256),
                choices(op, 64, 2),
                choices(op, 64, 5),
                choices(op, 64, 10),
                random(op),
            ];
            for (at, (value, text)) in values.iter().zip(row).enumerate() {
                agrees(*value, text, &format!("op {op}, column {at}"));
            }
        }
    }

    #[test]
    fn theory_unequal_rates_give_known_values() {
        let classes = hot_cold(0.2, 0.8);
        agrees(fifo_classes(0.07, &classes), "8.182", "80/20, 7 %");
        agrees(fifo_classes(0.28, &classes), "2.820", "80/20, 28 %");
        agrees(separated(0.07, &classes), "5.254", "80/20 separated, 7 %");
        agrees(separated(0.28, &classes), "1.866", "80/20 separated, 28 %");
        let zipf = zipf(489_000, 0.99);
        agrees(fifo_classes(0.07, &zipf), "11.664", "Zipf, 7 %");
        agrees(fifo_classes(0.28, &zipf), "3.714", "Zipf, 28 %");
    }

    #[test]
    fn theory_equal_rates_give_uniform_case() {
        for op in [0.05, 0.28, 1.0, 5.0] {
            let same = hot_cold(0.3, 0.3);
            for value in [fifo_classes(op, &same), separated(op, &same), greedy(op, 1 << 14)] {
                assert!((value / fifo(op) - 1.0).abs() < 2e-3, "op {op}: {value} {}", fifo(op));
            }
            assert!((choices(op, 64, 1) / random(op) - 1.0).abs() < 1e-9, "op {op}");
            assert!((choices(op, 64, 5000) / greedy(op, 64) - 1.0).abs() < 2e-3, "op {op}");
        }
    }
}
