//! Which token goes where: drawn once on the host, then tables for the kernels.

use crate::options::Options;

/// The tables of one draw; the layout is that of the `Emulation` structure in `kernels.cu`.
#[derive(Debug)]
pub struct Routing {
    /// `[s][d][c][cap]`: token, or place among the tokens that cross when nodes differ.
    pub rows: Vec<u32>,
    /// `[s][d][c]`.
    pub row_count: Vec<u32>,
    /// `[s][node][c][cap]`.
    pub crossing: Vec<u32>,
    /// `[s][node][c]`.
    pub cross_count: Vec<u32>,
    /// `[s][node][c][cap][8]`, two to a word: the row of a crossing token in the flow to each local
    /// index, or 0xffff.
    pub members: Vec<u32>,
}

/// Words of a crossing token in `members`: a half for each local index.
const MEMBER_WORDS: usize = 4;

/// A small generator of random numbers: SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In 0..1, without 0.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

impl Routing {
    /// Every token of every rank chooses `top_k` different experts by their weights.
    pub fn draw(options: &Options, skew: f64, random: &mut Random) -> Self {
        let (ranks, channels, cap) = (options.ranks(), options.channels, options.cap());
        let per_node = options.ranks_per_node as usize;
        let nodes = ranks / per_node;
        let per_rank = options.experts / ranks;
        // Popularity falls over the experts in a random order, which is the same in every draw.
        let mut order: Vec<usize> = (0..options.experts).collect();
        let mut shuffle = Random(options.seed ^ 0x5eed);
        for i in (1..order.len()).rev() {
            order.swap(i, (shuffle.next() % (i as u64 + 1)) as usize);
        }
        let mut weights = vec![0.0; options.experts];
        for (place, &expert) in order.iter().enumerate() {
            weights[expert] = (place as f64 + 1.0).powf(-skew);
        }
        let mut routing = Self {
            rows: vec![0; ranks * ranks * channels * cap],
            row_count: vec![0; ranks * ranks * channels],
            crossing: vec![0; ranks * nodes * channels * cap],
            cross_count: vec![0; ranks * nodes * channels],
            members: vec![u32::MAX; ranks * nodes * channels * cap * MEMBER_WORDS],
        };
        let mut keys: Vec<(f64, usize)> = Vec::with_capacity(options.experts);
        for source in 0..ranks {
            for token in 0..options.tokens {
                // The k smallest of exponential times with these rates: a draw by weight without
                // putting back.
                keys.clear();
                let times = weights.iter().map(|weight| -random.unit().ln() / weight);
                keys.extend(times.enumerate().map(|(expert, time)| (time, expert)));
                let k = options.top_k.min(keys.len()) - 1;
                keys.select_nth_unstable_by(k, |a, b| a.0.total_cmp(&b.0));
                let mut to = vec![false; ranks];
                for (_, expert) in &keys[..=k] {
                    to[expert / per_rank] = true;
                }
                routing.add(source, token, &to, (channels, cap, per_node));
            }
        }
        routing
    }

    fn add(
        &mut self,
        source: usize,
        token: usize,
        to: &[bool],
        (channels, cap, per_node): (usize, usize, usize),
    ) {
        let (ranks, channel) = (to.len(), token / cap);
        let nodes = ranks / per_node;
        for node in 0..nodes {
            let members = node * per_node..(node + 1) * per_node;
            if !to[members.clone()].iter().any(|chosen| *chosen) {
                continue;
            }
            let near = source / per_node == node;
            let mut entry = token as u32;
            let cross = (source * nodes + node) * channels + channel;
            if !near {
                let place = self.cross_count[cross];
                self.crossing[cross * cap + place as usize] = token as u32;
                self.cross_count[cross] += 1;
                entry = place;
            }
            for rank in members.filter(|&rank| to[rank]) {
                let flow = (source * ranks + rank) * channels + channel;
                let row = self.row_count[flow];
                self.rows[flow * cap + row as usize] = entry;
                self.row_count[flow] += 1;
                if !near {
                    let (local, place) = (rank % per_node, cross * cap + entry as usize);
                    let word = &mut self.members[place * MEMBER_WORDS + local / 2];
                    let shift = 16 * (local % 2);
                    *word = *word & !(0xffff << shift) | row << shift;
                }
            }
        }
    }
}
