//! Where an axis has its ticks, and how values become positions.

use super::chart::{Axis, Scale};

/// An axis whose ends are known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ruler {
    scale: Scale,
    from: f64,
    to: f64,
    /// The ticks, each with its text.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Ruler {
    /// A ruler over all values, rounded outwards to ticks where the axis leaves the end open.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let usable =
            |value: &f64| value.is_finite() && (axis.scale == Scale::Linear || *value > 0.0);
        let ends = values.filter(usable).fold(None, |ends: Option<(f64, f64)>, value| {
            Some(ends.map_or((value, value), |(from, to)| (from.min(value), to.max(value))))
        });
        let (low, high) = ends.unwrap_or((1.0, 1.0));
        match axis.scale {
            Scale::Linear => Self::linear(axis, low.min(0.0), high),
            Scale::Log => Self::log(axis, low, high),
        }
    }

    fn linear(axis: &Axis, low: f64, high: f64) -> Self {
        let (low, high) = (axis.from.unwrap_or(low), axis.to.unwrap_or(high));
        let high = if high > low { high } else { low + 1.0 };
        let step = step((high - low) / 6.0);
        let from = axis.from.unwrap_or_else(|| (low / step).floor() * step);
        let to = axis.to.unwrap_or_else(|| (high / step - 1e-9).ceil() * step);
        let decimals = decimals(step);
        let mut ticks = Vec::new();
        let mut tick = (from / step - 1e-9).ceil();
        while tick * step <= to + step * 1e-9 {
            ticks.push((tick * step, format!("{:.decimals$}", tick * step + 0.0)));
            tick += 1.0;
        }
        Self { scale: Scale::Linear, from, to, ticks }
    }

    fn log(axis: &Axis, low: f64, high: f64) -> Self {
        let mut from = axis.from.unwrap_or(low).max(f64::MIN_POSITIVE);
        let mut to = axis.to.unwrap_or(high).max(from);
        let decade = |value: f64| 10_f64.powf(value.log10().floor());
        let all: Vec<f64> = {
            let (mut ticks, mut power) = (Vec::new(), decade(from));
            while power <= to * 10.0 {
                ticks.extend([power, power * 2.0, power * 5.0]);
                power *= 10.0;
            }
            ticks
        };
        if axis.from.is_none() {
            from = all.iter().copied().rfind(|tick| *tick <= from * (1.0 + 1e-9)).unwrap_or(from);
        }
        if axis.to.is_none() {
            to = all.iter().copied().find(|tick| *tick >= to * (1.0 - 1e-9)).unwrap_or(to);
        }
        if to <= from {
            to = from * 10.0;
        }
        let inside = |tick: &f64| *tick >= from * (1.0 - 1e-9) && *tick <= to * (1.0 + 1e-9);
        let ticks = all.iter().copied().filter(inside).map(|tick| (tick, super::number(tick)));
        Self { scale: Scale::Log, from, to, ticks: ticks.collect() }
    }

    /// Where a value is, from 0 to 1; `None` outside.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log if value <= 0.0 => return None,
            Scale::Log => (value / self.from).ln() / (self.to / self.from).ln(),
        };
        (-1e-9..=1.0 + 1e-9).contains(&share).then_some(share)
    }
}

/// The next larger of 1, 2 and 5 times a power of ten.
fn step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

/// Decimals that tell neighbouring ticks apart.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 12")]
fn decimals(step: f64) -> usize {
    (-step.log10() - 1e-9).ceil().clamp(0.0, 12.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ruler: &Ruler) -> Vec<&str> {
        ruler.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn axis_linear_has_round_ticks() {
        let ruler = Ruler::new(&Axis::linear("x"), [3.0, 1086.0].into_iter());
        assert_eq!(texts(&ruler), ["0", "200", "400", "600", "800", "1000", "1200"]);
        assert_eq!(ruler.place(600.0), Some(0.5));
        assert_eq!(ruler.place(1300.0), None);
        let ruler = Ruler::new(&Axis::linear("x"), [0.0, 0.9].into_iter());
        assert_eq!(texts(&ruler), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        let ruler = Ruler::new(&Axis::linear("x"), [-18.0, 50.0].into_iter());
        assert_eq!(texts(&ruler), ["-20", "0", "20", "40", "60"]);
    }

    #[test]
    fn axis_log_has_ticks_at_1_2_and_5() {
        let ruler = Ruler::new(&Axis::log("x"), [3.0, 100.0, 0.0].into_iter());
        assert_eq!(texts(&ruler), ["2", "5", "10", "20", "50", "100"]);
        assert_eq!(ruler.place(0.0), None);
        assert!((ruler.place(100.0).expect("inside") - 1.0).abs() < 1e-9);
    }

    #[test]
    fn axis_without_values_still_has_ticks() {
        for axis in [Axis::linear("x"), Axis::log("x")] {
            let ruler = Ruler::new(&axis, [f64::NAN].into_iter());
            assert!(ruler.ticks.len() >= 2, "{ruler:?}");
        }
    }
}
