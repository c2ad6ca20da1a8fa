//! *Pure.* A tag as text, made without memory of its own: most polls are a comparison with it.

use farshore_shared::etag::{DesiredTag, Mark};

use super::publication::GroupMark;
use crate::directory::{RosterMark, Short};

/// Five numbers of 64 bits at most, and what stands between them.
const TEXT_LIMIT: usize = 96;

/// The text of a [`DesiredTag`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct TagText {
    bytes: [u8; TEXT_LIMIT],
    used: usize,
}

impl TagText {
    /// The tag of a roster and a group.
    pub(crate) fn new(roster: &RosterMark, group: &GroupMark) -> Self {
        let mut text = Self { bytes: [0; TEXT_LIMIT], used: 0 };
        text.put(b"\"");
        text.number(roster.epoch.into());
        text.put(b".");
        text.number(roster.sequence);
        text.put(b"-");
        text.hex(roster.short);
        text.put(b".");
        text.number(group.sequence);
        text.put(b"-");
        text.hex(group.short);
        text.put(b"\"");
        text
    }

    /// The text.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    fn number(&mut self, mut number: u64) {
        let (mut digits, mut first) = ([0; 20], 20);
        loop {
            first -= 1;
            digits[first] = b'0' + u8::try_from(number % 10).expect("a digit");
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.put(&digits[first..]);
    }

    fn hex(&mut self, short: Short) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in short {
            self.put(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

/// The tag of a roster and a group.
pub(crate) fn tag(roster: &RosterMark, group: &GroupMark) -> DesiredTag {
    DesiredTag {
        epoch: roster.epoch.into(),
        roster: Mark { sequence: roster.sequence, short: hex::encode(roster.short) },
        group: Mark { sequence: group.sequence, short: hex::encode(group.short) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_that_of_the_tag() {
        for number in [1, 17, 1_800_000_000_123, u64::MAX] {
            let epoch = u32::try_from(number).unwrap_or(u32::MAX);
            let short = [0, 0x1f, 0xab, 0xff];
            let roster = RosterMark { epoch, sequence: number, short, floor: 0, group: 0 };
            let group = GroupMark { sequence: number, short };
            let text = TagText::new(&roster, &group);
            assert_eq!(text.as_bytes(), tag(&roster, &group).to_string().as_bytes());
        }
    }
}
