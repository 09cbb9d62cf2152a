//! Tokens of a text in the place of its bytes: any two neighbours become one in constant time.

/// The end of a word.
pub(super) const END: u32 = u32::MAX;

/// A byte inside of a token.
const INSIDE: u32 = u32::MAX - 1;

/// Words one after the other. A token is written at the places of its first and its last byte, and
/// the places between are [`INSIDE`], so that both neighbours of a token are found by lengths.
pub(super) struct Symbols<S> {
    /// Words, with [`END`] before, between and after them.
    places: Vec<u32>,
    /// Bytes of each token.
    pub sizes: S,
}

impl<S: AsRef<[u32]>> Symbols<S> {
    pub fn new(sizes: S, capacity: usize) -> Self {
        let mut places = Vec::with_capacity(capacity);
        places.push(END);
        Self { places, sizes }
    }

    /// Appends a word as tokens of one byte each.
    pub fn push(&mut self, word: impl Iterator<Item = u32>) {
        self.places.extend(word);
        self.places.push(END);
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn at(&self, place: usize) -> u32 {
        self.places[place]
    }

    fn size(&self, token: u32) -> usize {
        self.sizes.as_ref()[token as usize] as usize
    }

    /// Where the next token begins.
    pub fn after(&self, place: usize) -> usize {
        place + self.size(self.places[place])
    }

    /// Where the token before begins, which must be there.
    pub fn before(&self, place: usize) -> usize {
        place - self.size(self.places[place - 1])
    }

    /// Whether these two tokens begin here.
    pub fn is_pair(&self, place: usize, (left, right): (u32, u32)) -> bool {
        // A token of one byte is at its place however it is reached; of others only the first byte
        // can have been the start of a pair.
        self.places[place] == left && self.places[self.after(place)] == right
    }

    /// Makes one token of the two that begin here.
    pub fn join(&mut self, place: usize, token: u32) {
        let middle = self.after(place);
        let end = self.after(middle);
        self.places[middle - 1] = INSIDE;
        self.places[middle] = INSIDE;
        self.places[place] = token;
        self.places[end - 1] = token;
    }

    /// The tokens of all words.
    pub fn tokens(&self) -> impl Iterator<Item = u32> {
        let mut place = 1;
        std::iter::from_fn(move || {
            while *self.places.get(place)? == END {
                place += 1;
            }
            let token = self.places[place];
            place = self.after(place);
            Some(token)
        })
    }
}
