//! The first divergence: where the calls of some ranks leave those of the others, and what explains
//! most of it with least.

use super::comm::AgreedRun;
use super::signature::{Called, Relation};
use super::trouble::worst_relation;
use crate::finding::{self, DivergenceKind, Signature};

/// Groups of ranks with different calls above which nothing is aligned.
const MAX_GROUPS: usize = 16;
/// Most neighbouring calls that are taken as skipped or made in addition.
const MAX_SHIFT: usize = 8;
/// Calls in a row that fit after an edit which make it an explanation though others follow that do
/// not fit.
const ENOUGH: usize = 16;
/// Calls in a row that agree after a wrong one, so that what differs later is another matter.
const APART: usize = 4;

/// The calls of a rank from the first difference on; `None` is a call that was lost.
pub(crate) type Sequence = Vec<Option<Called>>;

/// What explains the calls of some ranks, against those of the others.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Explanation {
    pub(crate) kind: DivergenceKind,
    /// Ranks of the communicator, sorted.
    pub(crate) ranks: Vec<usize>,
    pub(crate) call: Option<Called>,
    pub(crate) other_call: Option<Called>,
    pub(crate) calls: i64,
    /// First and last position in the calls of the others, and in those of the ranks.
    pub(crate) others_position: [i64; 2],
    pub(crate) position: [i64; 2],
}

/// All equally short explanations.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Divergence {
    pub(crate) explanations: Vec<Explanation>,
    /// Ranks whose calls one of them explains: where these alone differ, all is explained.
    pub(crate) ranks: Vec<usize>,
    /// Number of the last call on which all ranks agree, and that call.
    pub(crate) agreed: (i64, Option<Called>),
    /// The calls stay apart: later rounds differ, too.
    pub(crate) lasting: bool,
}

impl Explanation {
    /// The explanation with the text of its calls and the numbers of its ranks.
    pub(crate) fn worded(
        &self,
        describe: impl Fn(&Called) -> Signature,
        rank: impl Fn(usize) -> i64,
    ) -> finding::Divergence {
        finding::Divergence {
            call: self.call.as_ref().map(&describe),
            calls: self.calls,
            comm_ranks: self.ranks.iter().map(|&place| rank(place)).collect(),
            kind: self.kind,
            other_call: self.other_call.as_ref().map(&describe),
            others_position: self.others_position,
            position: self.position,
        }
    }
}

/// Whether the calls of a round agree but for those of some ranks.
pub(crate) fn agree_without(calls: &[(i64, Called)], ranks: &[i64]) -> bool {
    let others: Vec<Called> =
        calls.iter().filter(|(rank, _)| !ranks.contains(rank)).map(|(_, called)| *called).collect();
    !matches!(worst_relation(&others), Relation::Differ { .. })
}

/// Whether two sequences are the same as far as both go.
pub(crate) fn same(a: &Sequence, b: &Sequence) -> bool {
    a.iter().zip(b).all(|(a, b)| fits(Some(a), Some(b)))
}

/// Ranks with the same calls as far as they have gone.
struct Group {
    ranks: Vec<usize>,
    /// Whose calls go furthest.
    longest: usize,
}

/// How one sequence becomes another.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Edit {
    kind: Kind,
    /// Index at which they differ first.
    at: usize,
    /// Calls skipped or made in addition.
    shift: usize,
    /// Calls that fit afterwards, less those that one side has too many.
    score: i64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Skipped,
    Extra,
    Swapped,
    Branched,
    /// One call is another or has other parameters: a mismatch, and no divergence.
    Wrong,
}

/// Aligns the calls of all ranks from number `start` on. `None` where the rounds that differ are
/// single calls with a wrong function or parameter, or where too much differs.
pub(crate) fn explain(
    sequences: &[Sequence],
    start: i64,
    agreed: Option<AgreedRun>,
) -> Option<Divergence> {
    let groups = groups(sequences)?;
    let mut best: Option<(usize, Vec<Vec<Found>>)> = None;
    for (at, reference) in groups.iter().enumerate() {
        let mut found: Vec<Found> = Vec::new();
        let mut cost = 0;
        for other in groups.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, g)| g) {
            let edits = edits(&sequences[reference.longest], &sequences[other.longest]);
            cost += other.ranks.len() * edits.first().map_or(0, cost_of);
            found.push(Found { reference: reference.longest, ranks: other.ranks.clone(), edits });
        }
        match &mut best {
            Some((least, all)) if *least == cost => all.push(found),
            Some((least, _)) if *least < cost => {}
            _ => best = Some((cost, vec![found])),
        }
    }
    describe(sequences, start, agreed, best?.1)
}

/// What one group does against a reference.
struct Found {
    reference: usize,
    ranks: Vec<usize>,
    /// Equally good.
    edits: Vec<Edit>,
}

fn cost_of(edit: &Edit) -> usize {
    match edit.kind {
        Kind::Skipped | Kind::Extra => edit.shift,
        Kind::Swapped => 1,
        Kind::Wrong => edit.shift.max(1),
        Kind::Branched => MAX_SHIFT + 1,
    }
}

/// Whether two calls can stand in one round.
fn fits(a: Option<&Option<Called>>, b: Option<&Option<Called>>) -> bool {
    match (a, b) {
        (Some(Some(a)), Some(Some(b))) => !matches!(a.relation(b), Relation::Differ { .. }),
        _ => true,
    }
}

/// Ranks by their calls; `None` where all agree or too few do.
fn groups(sequences: &[Sequence]) -> Option<Vec<Group>> {
    let mut order: Vec<usize> =
        (0..sequences.len()).filter(|&rank| !sequences[rank].is_empty()).collect();
    order.sort_by_key(|&rank| (std::cmp::Reverse(sequences[rank].len()), rank));
    let mut groups: Vec<Group> = Vec::new();
    for rank in order {
        let joins = |group: &Group| same(&sequences[rank], &sequences[group.longest]);
        match groups.iter().position(joins) {
            Some(group) => groups[group].ranks.push(rank),
            None if groups.len() == MAX_GROUPS => return None,
            None => groups.push(Group { ranks: vec![rank], longest: rank }),
        }
    }
    for group in &mut groups {
        group.ranks.sort_unstable();
    }
    groups.sort_by_key(|group| group.ranks.first().copied());
    (groups.len() > 1).then_some(groups)
}

/// The equally good edits that make the calls of `other` of those of `reference`.
fn edits(reference: &Sequence, other: &Sequence) -> Vec<Edit> {
    let both = reference.len().min(other.len());
    let differs = |from: usize| (from..both).find(|&at| !fits(reference.get(at), other.get(at)));
    let Some(at) = differs(0) else { return Vec::new() };
    let mut found = shifts(reference, other, at);
    found.extend(swap(reference, other, at));
    let next = differs(at + 1);
    found.extend(wrong(reference, other, at));
    let best = found.iter().map(|edit| (edit.score, std::cmp::Reverse(edit.shift))).max();
    if let Some(best) = best {
        found.retain(|edit| (edit.score, std::cmp::Reverse(edit.shift)) == best);
        return found;
    }
    match next {
        // One wrong call, and much later something else.
        Some(next) if next - at > APART => {
            let rest = edits(&reference[at + 1..].to_vec(), &other[at + 1..].to_vec());
            rest.into_iter().map(|edit| Edit { at: edit.at + at + 1, ..edit }).collect()
        }
        _ if repeated_parameter(reference, other, at) => {
            vec![Edit { kind: Kind::Wrong, at, shift: 0, score: 0 }]
        }
        _ => vec![Edit { kind: Kind::Branched, at, shift: 0, score: 0 }],
    }
}

/// One wrong call and no other difference; or several in a row, of the same functions, after which all
/// agree again: as many calls on both sides need no shift.
fn wrong(reference: &Sequence, other: &Sequence, at: usize) -> Option<Edit> {
    let both = reference.len().min(other.len());
    let fitting = |at: usize| fits(reference.get(at), other.get(at));
    let run = (at..both).take_while(|&at| !fitting(at)).count();
    let several = || {
        run <= MAX_SHIFT
            && at + run < both
            && same_functions(&reference[at..at + run], &other[at..at + run])
    };
    let fine = (run == 1 || several()) && (at + run..both).all(fitting);
    let score = (both - at - run) as i64 - reference.len().abs_diff(other.len()) as i64;
    // Where a shift by fewer calls explains as much, it is the shorter explanation.
    fine.then_some(Edit { kind: Kind::Wrong, at, shift: if run == 1 { 0 } else { run }, score })
}

/// Whether calls differ in their parameters only.
fn same_functions(a: &[Option<Called>], b: &[Option<Called>]) -> bool {
    a.iter().zip(b).all(|pair| match pair {
        (Some(a), Some(b)) => a.operation == b.operation,
        _ => true,
    })
}

/// Whether only parameters differ, and calls that agree stand between them: the same wrong parameter
/// again and again.
fn repeated_parameter(reference: &Sequence, other: &Sequence, at: usize) -> bool {
    let both = reference.len().min(other.len());
    same_functions(&reference[at..both], &other[at..both])
        && (at..both).any(|at| fits(reference.get(at), other.get(at)))
}

/// Calls left out, or made in addition.
fn shifts(reference: &Sequence, other: &Sequence, at: usize) -> Vec<Edit> {
    let mut found = Vec::new();
    for shift in 1..=MAX_SHIFT {
        for kind in [Kind::Skipped, Kind::Extra] {
            let (longer, shorter) = match kind {
                Kind::Skipped => (reference, other),
                _ => (other, reference),
            };
            if at + shift > longer.len() {
                continue;
            }
            let (longer, shorter) = (&longer[at + shift..], &shorter[at..]);
            let fitting =
                longer.iter().zip(shorter).take_while(|(a, b)| fits(Some(a), Some(b))).count();
            let whole = fitting == longer.len().min(shorter.len());
            if fitting == 0 || !(whole || fitting >= ENOUGH) {
                continue;
            }
            let left = if whole { longer.len().abs_diff(shorter.len()) } else { 0 };
            found.push(Edit { kind, at, shift, score: fitting as i64 - left as i64 });
        }
    }
    found
}

/// Two neighbours in the other order.
fn swap(reference: &Sequence, other: &Sequence, at: usize) -> Option<Edit> {
    let both = reference.len().min(other.len());
    let crossed = at + 1 < both
        && fits(reference.get(at), other.get(at + 1))
        && fits(reference.get(at + 1), other.get(at));
    if !crossed {
        return None;
    }
    let rest = at + 2..both;
    let fitting = rest.clone().take_while(|&at| fits(reference.get(at), other.get(at))).count();
    let whole = fitting == rest.len();
    let left = if whole { reference.len().abs_diff(other.len()) } else { 0 };
    (whole || fitting >= ENOUGH).then_some(Edit {
        kind: Kind::Swapped,
        at,
        shift: 1,
        score: fitting as i64 + 2 - left as i64,
    })
}

fn describe(
    sequences: &[Sequence],
    start: i64,
    agreed: Option<AgreedRun>,
    all: Vec<Vec<Found>>,
) -> Option<Divergence> {
    let mut explanations: Vec<Explanation> = Vec::new();
    let mut ranks: Vec<usize> = Vec::new();
    let mut first = usize::MAX;
    let mut lasting = false;
    for found in all.iter().flatten() {
        for edit in &found.edits {
            let Some(kind) = kind_of(edit.kind) else { continue };
            first = first.min(edit.at);
            lasting |= kind != DivergenceKind::Swapped;
            ranks.extend(&found.ranks);
            let other = found.ranks.iter().copied().max_by_key(|&rank| sequences[rank].len())?;
            let (reference, other) = (&sequences[found.reference], &sequences[other]);
            let explanation = explained(kind, edit, (reference, other), start, agreed);
            explanations.push(Explanation { ranks: found.ranks.clone(), ..explanation });
        }
    }
    if explanations.is_empty() {
        return None;
    }
    explanations.sort_by(|a, b| (&a.ranks, a.kind, a.calls).cmp(&(&b.ranks, b.kind, b.calls)));
    explanations.dedup();
    ranks.sort_unstable();
    ranks.dedup();
    let before = first.checked_sub(1);
    let call = match before {
        Some(at) => sequences.iter().find_map(|sequence| sequence.get(at).copied().flatten()),
        None => agreed.map(|run| run.called),
    };
    let number = start.saturating_add(first as i64) - 1;
    Some(Divergence { explanations, ranks, agreed: (number, call), lasting })
}

fn kind_of(kind: Kind) -> Option<DivergenceKind> {
    match kind {
        Kind::Skipped => Some(DivergenceKind::Skipped),
        Kind::Extra => Some(DivergenceKind::Extra),
        Kind::Swapped => Some(DivergenceKind::Swapped),
        Kind::Branched => Some(DivergenceKind::Branched),
        Kind::Wrong => None,
    }
}

/// An edit with its calls and positions; the ranks are left open.
fn explained(
    kind: DivergenceKind,
    edit: &Edit,
    (reference, other): (&Sequence, &Sequence),
    start: i64,
    agreed: Option<AgreedRun>,
) -> Explanation {
    let call = |sequence: &Sequence, at: usize| sequence.get(at).copied().flatten();
    let number = |at: usize| start.saturating_add(at as i64);
    let at = edit.at;
    let run = |sequence: &Sequence| {
        let first = run_start(sequence, at, edit.shift);
        let first = match (first, agreed, call(sequence, at)) {
            // The run of equal calls began before anything differed.
            (0, Some(run), Some(call))
                if edit.shift == 1
                    && run.last.checked_add(1) == Some(start)
                    && fits(Some(&Some(run.called)), Some(&Some(call))) =>
            {
                run.first
            }
            _ => number(first),
        };
        [first, number(at)]
    };
    let (call, other_call, position) = match kind {
        DivergenceKind::Skipped => (call(reference, at), None, run(reference)),
        DivergenceKind::Extra => (call(other, at), None, run(other)),
        DivergenceKind::Swapped => {
            (call(other, at), call(reference, at), [number(at), number(at + 1)])
        }
        DivergenceKind::Branched => (call(other, at), call(reference, at), [number(at); 2]),
    };
    Explanation {
        kind,
        ranks: Vec::new(),
        call,
        other_call,
        calls: edit.shift.max(1) as i64,
        others_position: position,
        position,
    }
}

/// How far back calls may have been skipped or added with the same outcome: as long as the call
/// before is equal to that at the end of the shift.
fn run_start(sequence: &Sequence, at: usize, shift: usize) -> usize {
    let mut first = at;
    while first > 0
        && sequence.get(first - 1 + shift).is_some()
        && fits(sequence.get(first - 1), sequence.get(first - 1 + shift))
    {
        first -= 1;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::super::names::Names;
    use super::super::operation::Operation;
    use super::*;
    use crate::event::NcclCall;

    /// Calls by letters: each letter is an AllReduce of another size, `_` a lost call.
    fn calls(letters: &str) -> Sequence {
        let name = Names::new().intern("ncclAllReduce");
        letters
            .bytes()
            .map(|letter| {
                let mut call = NcclCall::new("ncclAllReduce");
                (call.count, call.datatype, call.op) = (i64::from(letter), 7, 0);
                // Two functions, so that not everything is a parameter.
                let api = if letter < b'n' { "ncclAllReduce" } else { "ncclAllGather" };
                (letter != b'_').then(|| Called::new(Operation::of(api), name, &call))
            })
            .collect()
    }

    /// Kind, ranks and position of one explanation.
    type Explained = (DivergenceKind, Vec<usize>, [i64; 2]);

    fn explained(ranks: &[&str]) -> Option<Vec<Explained>> {
        let sequences: Vec<Sequence> = ranks.iter().map(|letters| calls(letters)).collect();
        let found = explain(&sequences, 100, None)?;
        Some(found.explanations.into_iter().map(|e| (e.kind, e.ranks, e.position)).collect())
    }

    #[test]
    fn one_of_three_ranks_that_skips_is_named() {
        let expected = vec![(DivergenceKind::Skipped, vec![1], [101, 101])];
        assert_eq!(explained(&["abcde", "acde", "abcde"]), Some(expected));
    }

    #[test]
    fn of_two_ranks_a_skip_and_an_addition_are_equally_short() {
        let expected = vec![
            (DivergenceKind::Extra, vec![0], [101, 101]),
            (DivergenceKind::Skipped, vec![1], [101, 101]),
        ];
        assert_eq!(explained(&["abcde", "acde"]), Some(expected));
    }

    #[test]
    fn a_skip_inside_a_run_of_equal_calls_names_the_run() {
        let expected = vec![(DivergenceKind::Skipped, vec![2], [101, 104])];
        assert_eq!(explained(&["abbbbcd", "abbbbcd", "abbbcd"]), Some(expected));
    }

    #[test]
    fn a_run_that_began_before_the_first_difference_is_named_whole() {
        let called = calls("b")[0].unwrap();
        let run = AgreedRun { called, first: 90, last: 99 };
        let sequences = [calls("bcd"), calls("bcd"), calls("cd")];
        let found = explain(&sequences, 100, Some(run)).unwrap();
        assert_eq!(found.explanations[0].position, [90, 100]);
        assert_eq!(found.agreed, (99, Some(called)));
    }

    #[test]
    fn extra_swapped_and_branched_calls_are_told_apart() {
        let extra = vec![(DivergenceKind::Extra, vec![0], [101, 101])];
        assert_eq!(explained(&["axbcd", "abcd", "abcd"]), Some(extra));
        let swapped = vec![(DivergenceKind::Swapped, vec![0], [101, 102])];
        assert_eq!(explained(&["acbd", "abcd", "abcd"]), Some(swapped));
        let branched = vec![(DivergenceKind::Branched, vec![0], [101, 101])];
        assert_eq!(explained(&["axyz", "abcd", "abcd"]), Some(branched));
    }

    #[test]
    fn several_neighbouring_calls_may_be_skipped() {
        let sequences = [calls("abcdef"), calls("adef"), calls("abcdef")];
        let found = explain(&sequences, 0, None).unwrap();
        assert_eq!((found.explanations[0].calls, found.explanations[0].position), (2, [1, 1]));
    }

    #[test]
    fn a_single_wrong_call_is_no_divergence() {
        assert_eq!(explained(&["abcd", "axcd", "abcd"]), None);
        assert_eq!(explained(&["abcd", "azcd", "abcd"]), None, "another function");
        assert_eq!(explained(&["ab", "ax"]), None, "the last call");
        assert_eq!(explained(&["axcdefgh", "abcdefyh"]), None, "two of them, far apart");
    }

    #[test]
    fn wrong_parameters_in_a_row_are_no_divergence() {
        assert_eq!(explained(&["aaaaaa", "aabbaa"]), None, "as many calls on both sides");
        assert_eq!(explained(&["abcdefg", "abklefg", "abcdefg"]), None);
        // Of other functions they are a branch, and one call more explains more with less.
        let branched = vec![(DivergenceKind::Branched, vec![1], [101, 101])];
        assert_eq!(explained(&["abcd", "ayzd", "abcd"]), Some(branched));
        let extra = vec![(DivergenceKind::Extra, vec![1], [101, 101])];
        assert_eq!(explained(&["abcc", "akbc", "abcc"]), Some(extra));
    }

    #[test]
    fn the_same_wrong_parameter_again_and_again_is_no_divergence() {
        assert_eq!(explained(&["abacadae", "abbcbdbe", "abacadae"]), None);
    }

    #[test]
    fn the_skip_that_fits_the_lengths_is_preferred_in_a_periodic_sequence() {
        let expected = vec![(DivergenceKind::Skipped, vec![2], [100, 100])];
        assert_eq!(explained(&["cdcdcd", "cdcdcd", "dcdcd"]), Some(expected));
    }

    #[test]
    fn ranks_that_are_behind_agree_with_those_ahead() {
        assert_eq!(explained(&["abcd", "ab", "abc", ""]), None);
        let expected = vec![(DivergenceKind::Skipped, vec![1], [101, 101])];
        assert_eq!(explained(&["abcd", "acd", "ab", "a", "", "abc"]), Some(expected));
    }

    #[test]
    fn a_lost_call_fits_anything() {
        let expected = vec![(DivergenceKind::Skipped, vec![1], [101, 101])];
        assert_eq!(explained(&["ab_de", "acde", "abcde"]), Some(expected));
    }

    #[test]
    fn a_wrong_call_before_a_skip_is_another_matter() {
        let expected = vec![(DivergenceKind::Skipped, vec![1], [107, 107])];
        assert_eq!(explained(&["abcdefghij", "axcdefgij", "abcdefghij"]), Some(expected));
    }

    #[test]
    fn two_against_two_is_not_decided_by_numbers() {
        let found = explained(&["abcd", "acd", "abcd", "acd"]).unwrap();
        let expected = vec![
            (DivergenceKind::Extra, vec![0, 2], [101, 101]),
            (DivergenceKind::Skipped, vec![1, 3], [101, 101]),
        ];
        assert_eq!(found, expected);
    }
}
