//! What a connection begins with: a preamble of fixed size that carries the secret, so that nothing
//! a stranger sends is parsed.

use std::hint::black_box;

/// Longest secret, bytes.
pub(super) const SECRET_MAX: usize = 256;
/// Bytes of the preamble: magic, version, length of the secret, the secret padded with zeros.
pub(super) const PREAMBLE: usize = 4 + 2 + 2 + SECRET_MAX;
const MAGIC: [u8; 4] = *b"DXTC";
const VERSION: u16 = 1;

/// What keeps strangers out: known to all ranks of the job and to nobody else.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(Vec<u8>);

impl Secret {
    /// `None` when it is empty or longer than [`SECRET_MAX`].
    pub(super) fn new(text: &str) -> Option<Self> {
        (1..=SECRET_MAX).contains(&text.len()).then(|| Self(text.as_bytes().to_vec()))
    }

    pub(super) fn preamble(&self) -> [u8; PREAMBLE] {
        let mut bytes = [0; PREAMBLE];
        let length = u16::try_from(self.0.len()).unwrap_or(0);
        let head = MAGIC.into_iter().chain(VERSION.to_le_bytes()).chain(length.to_le_bytes());
        for (to, from) in bytes.iter_mut().zip(head.chain(self.0.iter().copied())) {
            *to = from;
        }
        bytes
    }

    /// What a received preamble shows. The secret is compared in a time that does not depend on
    /// where it differs.
    pub(super) fn check(&self, received: &[u8; PREAMBLE]) -> Visitor {
        let own = self.preamble();
        let (magic, rest) = received.split_at(MAGIC.len());
        if magic != MAGIC {
            return Visitor::Stranger;
        }
        let (version, secret) = rest.split_at(2);
        if version != VERSION.to_le_bytes() {
            return Visitor::OtherVersion;
        }
        let own = own.get(MAGIC.len() + 2..).unwrap_or_default();
        let differing = own.iter().zip(secret).fold(0, |sum, (a, b)| sum | black_box(a ^ b));
        if black_box(differing) == 0 { Visitor::Member } else { Visitor::WrongSecret }
    }
}

/// Who is at the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visitor {
    Member,
    WrongSecret,
    OtherVersion,
    Stranger,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_secret_opens_the_door() {
        let secret = Secret::new("correct horse").unwrap();
        assert_eq!(secret.check(&secret.preamble()), Visitor::Member);
        for wrong in ["correct hors", "correct horse ", "Correct horse", "x"] {
            let preamble = Secret::new(wrong).unwrap().preamble();
            assert_eq!(secret.check(&preamble), Visitor::WrongSecret, "{wrong}");
        }
        let mut http = [0; PREAMBLE];
        http[..14].copy_from_slice(b"GET / HTTP/1.1");
        assert_eq!(secret.check(&http), Visitor::Stranger);
        let mut newer = secret.preamble();
        newer[4] = 99;
        assert_eq!(secret.check(&newer), Visitor::OtherVersion);
    }

    #[test]
    fn a_secret_is_neither_empty_nor_endless() {
        assert!(Secret::new("").is_none());
        assert!(Secret::new(&"x".repeat(SECRET_MAX)).is_some());
        assert!(Secret::new(&"x".repeat(SECRET_MAX + 1)).is_none());
    }
}
