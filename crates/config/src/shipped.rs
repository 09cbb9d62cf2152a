//! The configs that come with the program, for those who have it without the repository.
//! `longreach run quickstart` reads one by its name where no file has that name. A folder may have
//! it: runs of the experiment make one.

use std::path::Path;

/// A config of the folder `configs`.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// What the command line calls it: its file name without `.toml`.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(Shipped {
            name: $name,
            text: include_str!(concat!("../../../configs/", $name, ".toml")),
        }),*]
    };
}

/// All of them, simple ones first.
pub const SHIPPED: &[Shipped] = shipped![
    "quickstart",
    "copy",
    "reverse",
    "text-lengths",
    "theta-base",
    "selection",
    "sort-curves",
    "needles-in-text",
    "randomized",
    "staged",
    "masked-staged",
    "linear-attention",
    "catalogue",
];

impl Shipped {
    /// The config that a path names, if it is a name alone and not that of a file.
    pub fn named(path: &Path) -> Option<&'static Self> {
        let name = path.to_str()?;
        let mut known = SHIPPED.iter();
        known.find(|shipped| shipped.name == name && (path.is_dir() || !path.exists()))
    }

    /// What errors call it.
    pub fn shown(&self) -> String {
        format!("{} (comes with longreach)", self.name)
    }

    /// Heading of its report.
    pub fn title(&self) -> String {
        let table = self.text.parse::<toml::Table>().unwrap_or_default();
        let title = table.get("title").and_then(toml::Value::as_str);
        title.unwrap_or(self.name).to_owned()
    }
}
