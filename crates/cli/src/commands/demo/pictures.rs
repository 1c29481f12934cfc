//! What `demo --out` leaves besides the log: the windows as files, and pictures of one of each phase.

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, anyhow};
use deepxtrace::artifact::{ArtifactName, list};

use crate::commands::heatmap::write_all;
use crate::input::artifacts::read_normal;

/// The windows of a run that are in `folder`.
pub struct Written {
    folder: PathBuf,
    names: Vec<ArtifactName>,
}

impl Written {
    /// Those in `folder` that were not there `before` the run.
    pub fn since(before: &[ArtifactName], folder: &Path) -> anyhow::Result<Self> {
        let mut names = list(folder)?;
        names.retain(|name| !before.contains(name));
        Ok(Self { folder: folder.to_owned(), names })
    }

    /// How many windows there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Draws all four pictures of each of these windows; gives how many they are.
    pub fn draw(&self, indices: impl Iterator<Item = usize>) -> anyhow::Result<usize> {
        thread::scope(|scope| {
            let drawn: Vec<_> =
                indices.map(|index| scope.spawn(move || self.draw_one(index))).collect();
            let mut pictures = 0;
            for one in drawn {
                let one = one.join().unwrap_or_else(|_| Err(anyhow!("a drawing thread panicked")));
                pictures += one?.len();
            }
            Ok(pictures)
        })
    }

    fn draw_one(&self, index: usize) -> anyhow::Result<Vec<PathBuf>> {
        let index = index as u64;
        let name = self.names.iter().find(|name| name.index() == index);
        let place = || format!("{}: window {index} was not written", self.folder.display());
        let path = self.folder.join(name.with_context(place)?.to_string());
        write_all(&read_normal(&path)?, &self.folder)
    }
}
