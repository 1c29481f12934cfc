//! How bytes move between the places of one analysis.

use std::sync::mpsc::{Receiver, Sender, channel};

use thiserror::Error;

use super::{Damaged, SpreadError};

/// Moves bytes between the places of one analysis. All places make the same calls.
pub trait Exchange {
    /// Why an exchange failed.
    type Error: std::error::Error + 'static;

    /// Number of this place, from 0; the root is 0.
    fn rank(&self) -> usize;

    /// Number of places, at least 1.
    fn size(&self) -> usize;

    /// Sends to each place what is meant for it, the own one included, and gives what each has sent
    /// here, both in the order of the places. A message may be empty.
    ///
    /// # Errors
    ///
    /// When a place is gone, or bytes cannot be moved.
    fn all_to_all(&mut self, messages: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Self::Error>;
}

/// Gives to all places what each of them has, in their order. Meant for short messages.
///
/// # Errors
///
/// When the exchange fails.
pub fn share<X: Exchange + ?Sized>(
    exchange: &mut X,
    bytes: &[u8],
) -> Result<Vec<Vec<u8>>, X::Error> {
    let messages = vec![bytes.to_vec(); exchange.size()];
    exchange.all_to_all(messages)
}

/// Gives to the root what each place has, in their order and in pieces of `chunk` bytes at most;
/// `None` elsewhere.
///
/// # Errors
///
/// When the exchange fails, or a place announces more than it sends.
pub fn gather<X: Exchange + ?Sized>(
    exchange: &mut X,
    bytes: Vec<u8>,
    chunk: usize,
) -> Result<Option<Vec<Vec<u8>>>, SpreadError<X::Error>> {
    let chunk = chunk.max(1);
    let lengths = share(exchange, &(bytes.len() as u64).to_le_bytes());
    let mut longest = 0;
    for length in lengths.map_err(SpreadError::Exchange)? {
        let length = <[u8; 8]>::try_from(&*length).map_err(|_| Damaged::Unknown)?;
        longest = longest.max(u64::from_le_bytes(length));
    }
    let root = exchange.rank() == 0;
    let mut gathered = vec![Vec::new(); exchange.size()];
    let mut pieces = bytes.chunks(chunk);
    for _ in 0..longest.div_ceil(chunk as u64) {
        let mut messages = vec![Vec::new(); exchange.size()];
        if let (Some(to_root), Some(piece)) = (messages.first_mut(), pieces.next()) {
            *to_root = piece.to_vec();
        }
        let received = exchange.all_to_all(messages).map_err(SpreadError::Exchange)?;
        for (whole, piece) in gathered.iter_mut().zip(received) {
            whole.extend(piece);
        }
    }
    Ok(root.then_some(gathered))
}

/// Gives each place what the root has for it, in pieces of `chunk` bytes at most. Only the root has
/// messages.
///
/// # Errors
///
/// As [`gather`].
pub(super) fn scatter<X: Exchange + ?Sized>(
    exchange: &mut X,
    messages: Option<Vec<Vec<u8>>>,
    chunk: usize,
) -> Result<Vec<u8>, SpreadError<X::Error>> {
    let chunk = chunk.max(1);
    let messages = messages.unwrap_or_default();
    let longest = messages.iter().map(Vec::len).max().unwrap_or(0) as u64;
    let told = share(exchange, &longest.to_le_bytes()).map_err(SpreadError::Exchange)?;
    let longest = told.first().and_then(|bytes| <[u8; 8]>::try_from(&**bytes).ok());
    let longest = u64::from_le_bytes(longest.ok_or(Damaged::Unknown)?);
    let mut pieces: Vec<_> = messages.iter().map(|message| message.chunks(chunk)).collect();
    let mut whole = Vec::new();
    for _ in 0..longest.div_ceil(chunk as u64) {
        let mut sent: Vec<Vec<u8>> = pieces
            .iter_mut()
            .map(|pieces| pieces.next().map_or_else(Vec::new, <[u8]>::to_vec))
            .collect();
        sent.resize(exchange.size(), Vec::new());
        let received = exchange.all_to_all(sent).map_err(SpreadError::Exchange)?;
        whole.extend(received.into_iter().next().unwrap_or_default());
    }
    Ok(whole)
}

/// The places of one analysis as threads of one process.
#[derive(Debug)]
pub struct InMemory {
    rank: usize,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Receiver<Vec<u8>>>,
}

/// Another place has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("place {0} of the analysis has ended")]
pub struct Gone(pub usize);

impl InMemory {
    /// A number of places, each to be moved into a thread of its own.
    pub fn places(count: usize) -> Vec<Self> {
        let mut places: Vec<Self> =
            (0..count).map(|rank| Self { rank, to: Vec::new(), from: Vec::new() }).collect();
        for from in 0..count {
            let mut receivers = Vec::with_capacity(count);
            for _ in 0..count {
                let (sender, receiver) = channel();
                if let Some(place) = places.get_mut(from) {
                    place.to.push(sender);
                }
                receivers.push(receiver);
            }
            for (place, receiver) in places.iter_mut().zip(receivers) {
                place.from.push(receiver);
            }
        }
        places
    }
}

impl Exchange for InMemory {
    type Error = Gone;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn all_to_all(&mut self, messages: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Gone> {
        for (rank, (to, message)) in self.to.iter().zip(messages).enumerate() {
            to.send(message).map_err(|_| Gone(rank))?;
        }
        let from = self.from.iter().enumerate();
        from.map(|(rank, from)| from.recv().map_err(|_| Gone(rank))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_gets_what_is_meant_for_it() {
        let run = |mut place: InMemory| {
            let rank = place.rank() as u8;
            let received = place.all_to_all((0..3).map(|to| vec![rank, to]).collect()).unwrap();
            assert_eq!(received, (0..3).map(|from| vec![from, rank]).collect::<Vec<_>>());
            let mine = vec![rank; usize::from(rank) * 5];
            assert_eq!(share(&mut place, &mine).unwrap(), [vec![], vec![1; 5], vec![2; 10]]);
            let gathered = gather(&mut place, mine, 4).unwrap();
            let back = scatter(&mut place, gathered.clone(), 3).unwrap();
            assert_eq!(back, vec![rank; usize::from(rank) * 5]);
            gathered
        };
        let gathered: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                InMemory::places(3).into_iter().map(|place| scope.spawn(|| run(place))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(gathered, [Some(vec![vec![], vec![1; 5], vec![2; 10]]), None, None]);
    }

    #[test]
    fn a_place_that_is_gone_is_an_error_that_names_it() {
        let mut places = InMemory::places(2);
        drop(places.pop());
        let error = places[0].all_to_all(vec![vec![], vec![1]]).unwrap_err();
        assert_eq!(error, Gone(1));
    }
}
