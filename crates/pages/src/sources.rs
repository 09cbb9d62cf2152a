//! What the Rust sources of a crate say about its configurations: the fields of its structs and
//! the names of its enums with their doc comments, and which struct a `kind` has. Rustdoc keeps
//! none of this in the program, so the sources are read.

use crate::markdown::plain;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use support::exit::Failure;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Fields, Item, LitStr, Token, Type, UseTree};

/// The types of one crate, by name.
#[derive(Default)]
pub struct Sources {
    structs: BTreeMap<String, Table>,
    enums: BTreeMap<String, Vec<Name>>,
    kinds: BTreeMap<String, Kinds>,
}

/// A struct that is read from a table.
#[derive(Clone)]
pub struct Table {
    /// Its doc comment on one line.
    pub doc: String,
    /// Its fields.
    pub keys: Vec<Key>,
    /// The documentation of its module, each paragraph on one line.
    pub module: Vec<String>,
    /// The struct that it is read as, where it is another: it knows which keys are absent.
    read_as: Option<String>,
}

/// A field.
#[derive(Clone)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// Its doc comment on one line.
    pub doc: String,
    /// The type that it holds, without `Option`, `Vec` and `Box`.
    pub holds: String,
    /// Whether it is a list of them.
    pub is_list: bool,
    /// Whether it may be absent.
    pub has_default: bool,
    /// Whether what an absent key stands for depends on other keys.
    pub is_open: bool,
    is_option: bool,
}

/// A variant of an enum whose variants are names.
#[derive(Clone)]
pub struct Name {
    /// As Rust code writes it.
    pub variant: String,
    /// As a config writes it.
    pub written: String,
    /// Its doc comment on one line.
    pub doc: String,
}

/// A list of kinds: an enum that is read from a table whose first key says which.
#[derive(Clone)]
pub struct Kinds {
    /// That key: `kind`, or `by`.
    pub tag: String,
    /// Every kind in the order of the list.
    pub kinds: Vec<Kind>,
}

/// One of them.
#[derive(Clone)]
pub struct Kind {
    /// As a config writes it.
    pub name: String,
    /// Its doc comment on one line; empty where only its struct has one.
    pub doc: String,
    /// Its struct.
    pub table: String,
}

impl Sources {
    /// Reads `crates/NAME/src` of the repository that this program was built in.
    ///
    /// # Errors
    ///
    /// [`Exit::Input`](support::exit::Exit::Input) if a file cannot be read,
    /// [`Exit::Bug`](support::exit::Exit::Bug) if it is not understood.
    pub fn of(name: &str) -> Result<Self, Failure> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut sources = Self::default();
        for path in rust_files(&crates.join(name).join("src"))? {
            let text = |path: &Path| fs_err::read_to_string(path).map_err(Failure::input);
            // A module of several files has its configuration in config.rs and its documentation in
            // mod.rs.
            let head = match path.ends_with("config.rs") && path.with_file_name("mod.rs").exists() {
                true => path.with_file_name("mod.rs"),
                false => path.clone(),
            };
            let read = sources.read(&text(&path)?, &text(&head)?);
            read.map_err(|error| bug(format!("{}: {error}", path.display())))?;
        }
        Ok(sources)
    }

    /// Adds the types of a file; `head` is the text of the file that documents their module.
    ///
    /// # Errors
    ///
    /// For text that is not Rust.
    pub fn read(&mut self, text: &str, head: &str) -> syn::Result<()> {
        let module = paragraphs(&syn::parse_file(head)?.attrs);
        for item in syn::parse_file(text)?.items {
            match item {
                Item::Struct(item) if is_read(&item.attrs)? => {
                    let name = item.ident.to_string();
                    let table = Table {
                        module: module.clone(),
                        ..table(&item.attrs, &item.fields)?
                    };
                    self.structs.insert(name, table);
                }
                Item::Enum(item) if is_read(&item.attrs)? => {
                    let name = item.ident.to_string();
                    if let Some(names) = names(&item)? {
                        self.enums.insert(name, names);
                    }
                }
                Item::Macro(item) => {
                    // The macros of the lists that have more than the kinds to generate.
                    let of = match item.mac.path.segments.last() {
                        Some(last) if last.ident == "tagged" => None,
                        Some(last) if last.ident == "tasks" => Some("TaskConfig"),
                        Some(last) if last.ident == "encodings" => Some("EncodingConfig"),
                        Some(last) if last.ident == "scalings" => Some("RopeScaling"),
                        _ => continue,
                    };
                    let tokens = item.mac.tokens;
                    let (name, kinds) = match of {
                        None => syn::parse2::<Tagged>(tokens)?.0,
                        Some(name) => (name.to_owned(), syn::parse2::<Listed>(tokens)?.0),
                    };
                    self.kinds.insert(name, kinds);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The kinds of an enum such as `TaskConfig`, if it is such a list.
    pub fn kinds(&self, of: &str) -> Option<&Kinds> {
        self.kinds.get(of)
    }

    /// The names that a type stands for, if it is an enum of names.
    pub fn names(&self, of: &str) -> Option<&[Name]> {
        self.enums.get(of).map(Vec::as_slice)
    }

    /// The keys of a struct, if there is one of this name that says what each of its keys is.
    ///
    /// # Errors
    ///
    /// [`Exit::Bug`](support::exit::Exit::Bug) for a field without a doc comment.
    pub fn table(&self, name: &str) -> Result<Option<Table>, Failure> {
        let Some(mut table) = self.structs.get(name).cloned() else {
            return Ok(None);
        };
        let read_as = table.read_as.as_ref().and_then(|it| self.structs.get(it));
        if let Some(read_as) = read_as {
            // Doc comments are those of the struct's own fields, where it has fields.
            table.keys = if table.keys.is_empty() {
                read_as.keys.clone()
            } else {
                let as_read = |key: Key| {
                    let read = read_as.keys.iter().find(|read| read.name == key.name)?;
                    Some(Key {
                        doc: key.doc,
                        is_open: read.is_option,
                        ..read.clone()
                    })
                };
                table.keys.into_iter().filter_map(as_read).collect()
            };
        }
        match table.keys.iter().find(|key| key.doc.is_empty()) {
            None => Ok(Some(table)),
            Some(key) => Err(bug(format!("`{name}::{}` has no doc comment", key.name))),
        }
    }
}

pub(crate) fn bug(text: String) -> Failure {
    Failure::bug(text)
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(folder).map_err(Failure::input)? {
        let path = entry.map_err(Failure::input)?.path();
        if path.is_dir() {
            found.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
    Ok(found)
}

fn table(attributes: &[Attribute], fields: &Fields) -> syn::Result<Table> {
    let own = serde(attributes)?;
    let named = fields
        .iter()
        .filter_map(|field| Some((field, field.ident.as_ref()?)));
    let keys = named.map(|(field, name)| {
        let outer = container(&field.ty);
        let (is_option, is_list) = (outer == "Option", outer == "Vec");
        let has_default = is_option
            || own.contains_key("default")
            || serde(&field.attrs)?.contains_key("default");
        Ok(Key {
            name: name.to_string(),
            doc: doc(&field.attrs),
            holds: innermost(&field.ty),
            is_list: is_list || is_option && container(inner(&field.ty)) == "Vec",
            has_default,
            is_open: false,
            is_option,
        })
    });
    Ok(Table {
        doc: doc(attributes),
        keys: keys.collect::<syn::Result<_>>()?,
        module: Vec::new(),
        read_as: own.get("from").cloned(),
    })
}

/// The names of an enum without fields.
fn names(item: &syn::ItemEnum) -> syn::Result<Option<Vec<Name>>> {
    let is_name = |variant: &syn::Variant| matches!(variant.fields, Fields::Unit);
    let snake_case = serde(&item.attrs)?.get("rename_all").cloned() == Some("snake_case".into());
    if !snake_case || !item.variants.iter().all(is_name) {
        return Ok(None);
    }
    let name = |variant: &syn::Variant| {
        let own = serde(&variant.attrs)?.get("rename").cloned();
        let variant_name = variant.ident.to_string();
        Ok(Name {
            written: own.unwrap_or_else(|| in_snake_case(&variant_name)),
            variant: variant_name,
            doc: doc(&variant.attrs),
        })
    };
    item.variants
        .iter()
        .map(name)
        .collect::<syn::Result<_>>()
        .map(Some)
}

/// As serde does it: an underscore before every capital letter but the first.
fn in_snake_case(variant: &str) -> String {
    let mut out = String::new();
    for (at, letter) in variant.char_indices() {
        if at > 0 && letter.is_uppercase() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// Whether a type derives `Deserialize`; types of other modules may have the same name.
fn is_read(attributes: &[Attribute]) -> syn::Result<bool> {
    let mut found = false;
    for attribute in attributes.iter().filter(|it| it.path().is_ident("derive")) {
        attribute.parse_nested_meta(|meta| {
            let last = meta.path.segments.last();
            found |= last.is_some_and(|last| last.ident == "Deserialize");
            Ok(())
        })?;
    }
    Ok(found)
}

/// What `#[serde(...)]` says, by its word; a word without a value has an empty one.
fn serde(attributes: &[Attribute]) -> syn::Result<BTreeMap<String, String>> {
    let mut said = BTreeMap::new();
    for attribute in attributes.iter().filter(|it| it.path().is_ident("serde")) {
        attribute.parse_nested_meta(|meta| {
            let word = meta.path.get_ident().map(ToString::to_string);
            let value = match meta.input.peek(Token![=]) {
                true => meta.value()?.parse::<LitStr>()?.value(),
                false => String::new(),
            };
            said.insert(word.unwrap_or_default(), value);
            Ok(())
        })?;
    }
    Ok(said)
}

/// A doc comment on one line.
fn doc(attributes: &[Attribute]) -> String {
    plain(&lines(attributes))
}

/// The paragraphs of a doc comment, each on one line.
fn paragraphs(attributes: &[Attribute]) -> Vec<String> {
    let lines = lines(attributes);
    // The line of an empty comment has a space where others have text.
    let paragraphs = lines.split("\n\n").map(plain);
    paragraphs.filter(|text| !text.is_empty()).collect()
}

fn lines(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| {
        let syn::Meta::NameValue(meta) = &attribute.meta else {
            return None;
        };
        match &meta.value {
            Expr::Lit(syn::ExprLit {
                lit: syn::Lit::Str(text),
                ..
            }) if meta.path.is_ident("doc") => Some(text.value()),
            _ => None,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// `Vec` of `Vec<f64>`.
fn container(of: &Type) -> String {
    let Type::Path(path) = of else {
        return String::new();
    };
    let last = path.path.segments.last();
    last.map_or_else(String::new, |last| last.ident.to_string())
}

/// `f64` of `Vec<f64>`; a type without arguments is its own.
fn inner(of: &Type) -> &Type {
    let Type::Path(path) = of else { return of };
    let Some(last) = path.path.segments.last() else {
        return of;
    };
    match &last.arguments {
        syn::PathArguments::AngleBracketed(arguments) => match arguments.args.last() {
            Some(syn::GenericArgument::Type(inner)) => inner,
            _ => of,
        },
        _ => of,
    }
}

fn innermost(of: &Type) -> String {
    match container(of).as_str() {
        "Option" | "Vec" | "Box" => innermost(inner(of)),
        name => name.to_owned(),
    }
}

/// The body of `tagged!`.
struct Tagged((String, Kinds));

impl Parse for Tagged {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        Attribute::parse_outer(input)?;
        input.parse::<syn::Visibility>()?;
        input.parse::<Token![enum]>()?;
        let name: syn::Ident = input.parse()?;
        let mut tag = "kind".to_owned();
        if !input.peek(syn::token::Brace) {
            input.parse::<syn::Ident>()?;
            tag = input.parse::<LitStr>()?.value();
        }
        let body;
        syn::braced!(body in input);
        let kinds = Punctuated::<KindLine, Token![,]>::parse_terminated(&body)?;
        let kinds = kinds.into_iter().map(|line| line.0).collect();
        Ok(Self((name.to_string(), Kinds { tag, kinds })))
    }
}

/// The body of a macro with a line for each kind.
struct Listed(Kinds);

impl Parse for Listed {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let kinds = Punctuated::<KindLine, Token![;]>::parse_terminated(input)?;
        Ok(Self(Kinds {
            tag: "kind".to_owned(),
            kinds: kinds.into_iter().map(|line| line.0).collect(),
        }))
    }
}

/// `"copy" => Copy(copy::CopyConfig)`, `"rope" => rope::{Rope, RopeConfig}` or `"yarn" =>
/// yarn::YarnScaling as Yarn`.
struct KindLine(Kind);

impl Parse for KindLine {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = Attribute::parse_outer(input)?;
        let name: LitStr = input.parse()?;
        input.parse::<Token![=>]>()?;
        let ahead = input.fork();
        let table = match ahead.parse::<Expr>() {
            Ok(expression)
                if ahead.is_empty() || ahead.peek(Token![;]) || ahead.peek(Token![,]) =>
            {
                input.parse::<Expr>()?;
                last_name(&expression)
            }
            _ => last_of(&input.parse::<UseTree>()?),
        };
        let table = table.ok_or_else(|| input.error("no struct after `=>`"))?;
        Ok(Self(Kind {
            name: name.value(),
            doc: doc(&attributes),
            table,
        }))
    }
}

/// The struct of `Copy(copy::CopyConfig, Option)` or `yarn::YarnScaling as Yarn`.
fn last_name(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Call(call) => last_name(call.args.first()?),
        Expr::Cast(cast) => last_name(&cast.expr),
        Expr::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

/// The last name of `rope::{Rope, RopeConfig}`.
fn last_of(tree: &UseTree) -> Option<String> {
    match tree {
        UseTree::Path(path) => last_of(&path.tree),
        UseTree::Name(name) => Some(name.ident.to_string()),
        UseTree::Group(group) => last_of(group.items.last()?),
        _ => None,
    }
}
