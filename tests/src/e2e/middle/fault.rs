//! What may happen to a request, and scripts that say to which.

use std::time::Duration;

use super::Seen;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Refused with this status; the API server never sees it.
    Refuse(u16),
    /// 429 with a `Retry-After` of so many seconds.
    TryAgainIn(u32),
    /// Passed on, but this status is the answer.
    DoneButSay(u16),
    /// The connection is closed; the API server never sees it.
    Reset,
    /// Passed on, and then the connection is closed without an answer.
    DoneButReset,
    /// No answer ever comes; the API server never sees it.
    Silent,
    /// Passed on, but no answer ever comes.
    DoneButSilent,
    /// Passed on after so long.
    Late(Duration),
    /// A watch that goes well for so many events, and then no more.
    Watch(usize, WatchFault),
}

/// How a watch goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchFault {
    /// Nothing comes any more, and nobody says so.
    Silence,
    /// The next event is half there when the connection closes.
    Truncated,
    /// It ends, as a watch may at any time.
    End,
    /// An event says that its place is gone (410).
    Gone,
}

/// The first such request meets the fault, all others none.
pub fn once(
    verb: &'static str,
    resource: &'static str,
    fault: Fault,
) -> impl FnMut(&Seen) -> Option<Fault> + Send {
    let mut left = Some(fault);
    move |seen| {
        (seen.verb == verb && seen.resource == resource)
            .then(|| left.take())
            .flatten()
    }
}

/// Faults by dice, the same ones for the same seed: which requests they hit
/// depends on what is asked, and in no case are there more than so many.
pub struct Storm {
    state: u64,
    left: usize,
}

impl Storm {
    /// At most `faults`, from this seed.
    pub fn new(seed: u64, faults: usize) -> Self {
        Self {
            state: seed,
            left: faults,
        }
    }

    /// splitmix64: every seed is a good one.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// What happens to this request.
    pub fn fault(&mut self, seen: &Seen) -> Option<Fault> {
        let dice = self.next();
        // Two of three requests, so that a launch meets some at every seed.
        if self.left == 0 || dice.is_multiple_of(3) {
            return None;
        }
        self.left -= 1;
        let watch = [WatchFault::Truncated, WatchFault::End, WatchFault::Gone];
        let choice = usize::try_from(dice >> 32).unwrap_or_default();
        Some(match (seen.verb.as_str(), choice % 6) {
            ("WATCH", n) => Fault::Watch(choice % 3, watch[n % watch.len()]),
            (_, 0) => Fault::Refuse(503),
            (_, 1) => Fault::TryAgainIn(1),
            (_, 2) => Fault::DoneButSay(504),
            (_, 3) => Fault::Reset,
            (_, 4) => Fault::DoneButReset,
            _ => Fault::Late(Duration::from_millis(300)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_is_the_same_weather_and_it_clears_up() {
        let request = Seen {
            verb: "POST".to_owned(),
            resource: "pods".to_owned(),
        };
        let weather = |seed| {
            let mut storm = Storm::new(seed, 4);
            (0..50).map(|_| storm.fault(&request)).collect::<Vec<_>>()
        };
        assert_eq!(weather(1), weather(1));
        assert_ne!(weather(1), weather(2));
        assert_eq!(weather(3).iter().flatten().count(), 4);
    }
}
