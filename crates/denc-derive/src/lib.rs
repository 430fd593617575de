//! `#[derive(Encode, Decode)]` for Ceph's little-endian encoding.
//!
//! On a struct: fields in order, flat; with `#[denc(v = 3, compat = 1)]` inside a versioned envelope, where a field
//! marked `#[denc(since = 2)]` is left at its default when the frame is older. On an enum every variant names its
//! tag, `#[denc(tag = 7)]`, written as one byte (`#[denc(repr = "u32")]` on the enum for a wider tag): formats must
//! never follow the order of a list.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::{parse_macro_input, Attribute, Data, DeriveInput, Fields, Ident, LitInt, LitStr};

#[derive(Default)]
struct Attrs {
    v: Option<u8>,
    compat: Option<u8>,
    since: Option<u8>,
    tag: Option<u64>,
    repr: Option<String>,
}

fn attrs(list: &[Attribute]) -> syn::Result<Attrs> {
    let mut out = Attrs::default();
    for attr in list.iter().filter(|a| a.path().is_ident("denc")) {
        attr.parse_nested_meta(|meta| {
            let int = || meta.value()?.parse::<LitInt>();
            if meta.path.is_ident("v") {
                out.v = Some(int()?.base10_parse()?);
            } else if meta.path.is_ident("compat") {
                out.compat = Some(int()?.base10_parse()?);
            } else if meta.path.is_ident("since") {
                out.since = Some(int()?.base10_parse()?);
            } else if meta.path.is_ident("tag") {
                out.tag = Some(int()?.base10_parse()?);
            } else if meta.path.is_ident("repr") {
                out.repr = Some(meta.value()?.parse::<LitStr>()?.value());
            } else {
                return Err(meta.error("denc knows: v, compat, since, tag, repr"));
            }
            Ok(())
        })?;
    }
    Ok(out)
}

/// Derives `denc::Encode`.
#[proc_macro_derive(Encode, attributes(denc))]
pub fn derive_encode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    encode(&input).unwrap_or_else(|e| e.to_compile_error()).into()
}

/// Derives `denc::Decode`.
#[proc_macro_derive(Decode, attributes(denc))]
pub fn derive_decode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    decode(&input).unwrap_or_else(|e| e.to_compile_error()).into()
}

/// The fields' names as they are bound in a pattern, and the pattern's inside.
fn bindings(fields: &Fields) -> (Vec<Ident>, Tokens) {
    match fields {
        Fields::Named(f) => {
            let names: Vec<Ident> = f.named.iter().map(|f| f.ident.clone().unwrap()).collect();
            (names.clone(), quote!({ #(#names),* }))
        }
        Fields::Unnamed(f) => {
            let names: Vec<Ident> = (0..f.unnamed.len()).map(|i| format_ident!("f{i}")).collect();
            (names.clone(), quote!(( #(#names),* )))
        }
        Fields::Unit => (vec![], quote!()),
    }
}

fn repr(a: &Attrs) -> Ident {
    format_ident!("{}", a.repr.as_deref().unwrap_or("u8"))
}

fn encode(input: &DeriveInput) -> syn::Result<Tokens> {
    let name = &input.ident;
    let top = attrs(&input.attrs)?;
    let body = match &input.data {
        Data::Struct(s) => {
            let (names, pattern) = bindings(&s.fields);
            let write = quote!(let Self #pattern = self; #(::denc::Encode::encode(#names, e);)*);
            match top.v {
                Some(v) => {
                    let compat = top.compat.unwrap_or(1);
                    quote!(e.envelope(#v, #compat, |e| { #write });)
                }
                None => write,
            }
        }
        Data::Enum(en) => {
            let repr = repr(&top);
            let mut arms = vec![];
            for variant in &en.variants {
                let id = &variant.ident;
                let tag = attrs(&variant.attrs)?
                    .tag
                    .ok_or_else(|| syn::Error::new_spanned(id, "name the variant's #[denc(tag = N)]"))?;
                let (names, pattern) = bindings(&variant.fields);
                arms.push(quote!(Self::#id #pattern => {
                    ::denc::Encode::encode(&(#tag as #repr), e);
                    #(::denc::Encode::encode(#names, e);)*
                }));
            }
            quote!(match self { #(#arms)* })
        }
        Data::Union(_) => return Err(syn::Error::new_spanned(name, "unions have no encoding")),
    };
    let (impls, types, wheres) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impls ::denc::Encode for #name #types #wheres {
            fn encode(&self, e: &mut ::denc::Encoder) { #body }
        }
    })
}

/// Reads the fields of one struct or variant into its bindings.
fn read_fields(fields: &Fields, names: &[Ident], versioned: bool) -> syn::Result<Tokens> {
    let mut out = vec![];
    for (field, name) in fields.iter().zip(names) {
        out.push(match attrs(&field.attrs)?.since {
            Some(since) if versioned => quote! {
                let #name = if struct_v >= #since { ::denc::Decode::decode(d)? } else { ::core::default::Default::default() };
            },
            _ => quote!(let #name = ::denc::Decode::decode(d)?;),
        });
    }
    Ok(quote!(#(#out)*))
}

fn decode(input: &DeriveInput) -> syn::Result<Tokens> {
    let name = &input.ident;
    let text = name.to_string();
    let top = attrs(&input.attrs)?;
    let body = match &input.data {
        Data::Struct(s) => {
            let (names, pattern) = bindings(&s.fields);
            let read = read_fields(&s.fields, &names, top.v.is_some())?;
            match top.v {
                Some(v) => quote!(d.envelope(#text, #v, |struct_v, d| { let _ = struct_v; #read Ok(Self #pattern) })),
                None => quote!(#read Ok(Self #pattern)),
            }
        }
        Data::Enum(en) => {
            let repr = repr(&top);
            let mut arms = vec![];
            for variant in &en.variants {
                let id = &variant.ident;
                let tag = attrs(&variant.attrs)?
                    .tag
                    .ok_or_else(|| syn::Error::new_spanned(id, "name the variant's #[denc(tag = N)]"))?;
                let (names, pattern) = bindings(&variant.fields);
                let read = read_fields(&variant.fields, &names, false)?;
                arms.push(quote!(#tag => { #read Ok(Self::#id #pattern) }));
            }
            quote! {
                let tag: #repr = ::denc::Decode::decode(d)?;
                match tag as u64 {
                    #(#arms)*
                    other => Err(::denc::DecodeError::BadTag { what: #text, tag: other }),
                }
            }
        }
        Data::Union(_) => return Err(syn::Error::new_spanned(name, "unions have no encoding")),
    };
    let (impls, types, wheres) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impls ::denc::Decode for #name #types #wheres {
            fn decode(d: &mut ::denc::Decoder<'_>) -> ::core::result::Result<Self, ::denc::DecodeError> { #body }
        }
    })
}
