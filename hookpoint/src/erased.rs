//! The only file with `unsafe`, and therefore longer than others: whoever wants to know whether the crate is sound reads this
//! one. What needs none is beside it: `allocated` counts, `any` has values that can be copied, `hears` says what a thread is to tell, `views` and
//! `lifetimes` are what is known of receivers.
//!
//! Instrumented code passes values of types that neither the macro nor the runtime can name. Three
//! things are done with them here, each with its argument beside it:
//!
//! 1. [`Erased`] and [`ErasedMut`] look at a value by its type at run time. Types are compared with
//!    [`typeid::of`], which ignores lifetimes, so a cast is made only to types that hold no
//!    lifetime of their own ([`Plain`]), or to references whose lifetime is then shortened to the
//!    borrow's.
//! 2. [`Receiver`] finds the module behind a receiver expression: `m`, `&m`, `Box<M>`, a guard. It calls the module
//!    where its lifetimes do not matter, or the model is seen to hold it.
//! 3. [`Current`] keeps what is current on a thread, such as its run, which borrows from the caller's stack. What it is
//!    does not matter here.
//!
//! Besides, [`CountingAllocator`] hands every request on to another allocator.

#![allow(unsafe_code)]

#[deny(unsafe_code)]
mod allocated;
#[deny(unsafe_code)]
mod any;
#[deny(unsafe_code)]
pub(crate) mod hears;
#[deny(unsafe_code)]
mod lifetimes;
#[deny(unsafe_code)]
mod views;

use std::alloc::{GlobalAlloc, Layout};
use std::any::TypeId;
use std::borrow::Cow;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::thread::LocalKey;

use candle_core::{Tensor, Var};

use allocated::{given_back, taken};
pub use allocated::{in_use, peak_of};
pub use any::AnyValue;
use hears::Pause;
pub use hears::{active, operations_wanted, values_wanted};
pub(crate) use hears::{hearing, listen_to_values, paused, resume, suspend};
use lifetimes::Lifetimes;
use views::{Itself, View};

// ---------------------------------------------------------------------------------------------
// 1. Values of unknown type
// ---------------------------------------------------------------------------------------------

/// A shared reference to a value whose type is known only at run time.
#[derive(Clone, Copy)]
pub struct Erased<'a> {
    pointer: *const (),
    type_id: TypeId,
    /// How large a value is that has no fixed size; anything for others.
    bytes: usize,
    life: PhantomData<&'a ()>,
}

impl<'a> Erased<'a> {
    /// Forgets the type of `value`, keeping its id.
    #[inline]
    pub fn of<T: ?Sized>(value: &'a T) -> Self {
        let (bytes, type_id) = (std::mem::size_of_val(value), typeid::of::<T>());
        Self { pointer: ptr::from_ref(value).cast(), type_id, bytes, life: PhantomData }
    }

    /// Where the value lives.
    pub fn address(&self) -> usize {
        self.pointer as usize
    }

    /// The value's type, its lifetimes ignored.
    pub fn type_id(&self) -> TypeId {
        self.type_id
    }

    #[inline]
    fn cast<U: Plain>(&self) -> Option<&'a U> {
        // SAFETY: the ids are equal and `U` holds no lifetimes, so the value is a `U`; it is
        // borrowed for 'a.
        (self.type_id == U::id()).then(|| unsafe { &*self.pointer.cast::<U>() })
    }

    fn cast_through<U: Plain>(&self) -> Option<&'a U> {
        let id = self.type_id;
        if id == TypeId::of::<&'static U>() || id == TypeId::of::<&'static mut U>() {
            // SAFETY: the value is a `&'x U` or `&'x mut U` borrowed for 'a, so 'x outlives 'a, and
            // a shared reborrow through it lives for 'a.
            return Some(unsafe { &**self.pointer.cast::<&'a U>() });
        }
        if id == TypeId::of::<&'static &'static U>() {
            // SAFETY: as above, one level deeper.
            return Some(unsafe { &***self.pointer.cast::<&'a &'a U>() });
        }
        None
    }

    /// The value as a `U`, also behind one or two references.
    pub(crate) fn get<U: Plain>(&self) -> Option<&'a U> {
        self.cast().or_else(|| self.cast_through())
    }

    /// The tensors of a slice of tensors, or of references to them.
    pub(crate) fn slice(&self) -> Option<Vec<Tensor>> {
        if self.type_id == TypeId::of::<[Tensor]>() {
            let many = self.bytes / size_of::<Tensor>();
            // SAFETY: the value is a `[Tensor]`, borrowed for 'a. Only `of` makes an `Erased` of a slice,
            // and notes how large it is.
            let all = unsafe { std::slice::from_raw_parts(self.pointer.cast::<Tensor>(), many) };
            return Some(all.to_vec());
        }
        if self.type_id == TypeId::of::<[&'static Tensor]>() {
            let many = self.bytes / size_of::<&Tensor>();
            // SAFETY: as above, and the references in it outlive 'a.
            let all = unsafe { std::slice::from_raw_parts(self.pointer.cast::<&'a Tensor>(), many) };
            return Some(all.iter().copied().cloned().collect());
        }
        None
    }

    /// Is this an option of a tensor that holds none?
    pub(crate) fn is_no_tensor(&self) -> bool {
        let optional =
            self.type_id == TypeId::of::<Option<&'static Tensor>>() || self.get::<Option<Tensor>>().is_some();
        optional && self.tensor().is_none()
    }

    /// The tensor that the value is, refers to or holds as an option.
    #[inline]
    pub fn tensor(&self) -> Option<&'a Tensor> {
        self.cast().or_else(|| self.tensor_inside())
    }

    /// Is this a tensor, or a plain reference to one?
    pub(crate) fn is_one_tensor(&self) -> bool {
        self.type_id == TypeId::of::<Tensor>() || self.type_id == TypeId::of::<&'static Tensor>()
    }

    #[inline(never)]
    fn tensor_inside(&self) -> Option<&'a Tensor> {
        if let Some(tensor) = self.cast_through::<Tensor>() {
            return Some(tensor);
        }
        if self.type_id == TypeId::of::<Option<&'static Tensor>>() {
            // SAFETY: the value is an `Option<&'x Tensor>` borrowed for 'a, and 'x outlives 'a.
            return unsafe { *self.pointer.cast::<Option<&'a Tensor>>() };
        }
        if let Some(option) = self.get::<Option<Tensor>>() {
            return option.as_ref();
        }
        if let Some(shared) = self.get::<std::sync::Arc<Tensor>>() {
            return Some(&**shared);
        }
        if let Some(boxed) = self.get::<Box<Tensor>>() {
            return Some(&**boxed);
        }
        if self.type_id == TypeId::of::<Cow<'static, Tensor>>() {
            // SAFETY: the value is a `Cow<'x, Tensor>` borrowed for 'a, and 'x outlives 'a.
            return Some(unsafe { &*self.pointer.cast::<Cow<'a, Tensor>>() });
        }
        self.get::<Var>().map(Var::as_tensor)
    }
}

/// An exclusive reference to a value whose type is known only at run time.
pub struct ErasedMut<'a> {
    pointer: *mut (),
    type_id: TypeId,
    life: PhantomData<&'a mut ()>,
}

impl<'a> ErasedMut<'a> {
    /// Forgets the type of `value`, keeping its id.
    #[inline]
    pub fn of<T>(value: &'a mut T) -> Self {
        Self { pointer: ptr::from_mut(value).cast(), type_id: typeid::of::<T>(), life: PhantomData }
    }

    /// The value's type, its lifetimes ignored.
    pub fn type_id(&self) -> TypeId {
        self.type_id
    }

    /// The same value, for a while.
    pub fn reborrow(&mut self) -> ErasedMut<'_> {
        ErasedMut { pointer: self.pointer, type_id: self.type_id, life: PhantomData }
    }

    /// The same value, to look at.
    pub fn shared(&self) -> Erased<'_> {
        Erased { pointer: self.pointer, type_id: self.type_id, bytes: 0, life: PhantomData }
    }

    /// The value as a `U`.
    pub fn get_mut<U: Plain>(&mut self) -> Option<&mut U> {
        // SAFETY: the ids are equal and `U` holds no lifetimes, so the value is a `U`; the borrow is
        // exclusive and lasts no longer than that of `self`.
        (self.type_id == U::id()).then(|| unsafe { &mut *self.pointer.cast::<U>() })
    }
}

/// A type without lifetimes: values with its `TypeId` are of this very type.
///
/// # Safety
/// The type must have no lifetime parameter, nor be built from types that were given one.
pub unsafe trait Plain: Sized + 'static {
    /// The id of the type, or of the type that this one stands for.
    fn id() -> TypeId {
        TypeId::of::<Self>()
    }
}

/// The id of a type without lifetimes: values with it are of that very type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PlainId(TypeId);

impl PlainId {
    /// The id of `T`, or of the type that it stands for.
    pub fn of<T: Plain>() -> Self {
        Self(T::id())
    }

    /// The id as such.
    pub fn get(self) -> TypeId {
        self.0
    }
}

macro_rules! plain {
    ($($ty:ty),* $(,)?) => { $(
        // SAFETY: none of these types has a lifetime.
        unsafe impl Plain for $ty {}
    )* };
}
plain!(Tensor, Var, bool, usize, u32, i32, i64, f32, f64, String, candle_core::Error, candle_core::D);
plain!(candle_nn::rnn::LSTMState, candle_nn::rnn::GRUState);
plain!(candle_nn::attention::AttnMask);

// Names alone, to which no lifetime can be given: of a type that has some, `'static` would not be true.
macro_rules! plain_layers {
    ($($($path:ident)::+ : $by:ident;)*) => { plain!($($($path)::+),*); };
}
hookpoint_grad::layers!(plain_layers);

// SAFETY: built from types that have no lifetimes.
unsafe impl<T: Plain> Plain for Option<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Plain for Vec<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Plain for Box<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Plain for std::sync::Arc<T> {}
// SAFETY: as above.
unsafe impl<T: Plain, E: Plain> Plain for Result<T, E> {}
// SAFETY: as above.
unsafe impl<A: Plain, B: Plain> Plain for (A, B) {}
// SAFETY: as above.
unsafe impl<A: Plain, B: Plain, C: Plain> Plain for (A, B, C) {}
// SAFETY: as above.
unsafe impl<A: Plain, B: Plain, C: Plain, D: Plain> Plain for (A, B, C, D) {}
// SAFETY: as above.
unsafe impl<K: Plain, V: Plain> Plain for std::collections::HashMap<K, V> {}
// SAFETY: as above.
unsafe impl<K: Plain, V: Plain> Plain for std::collections::BTreeMap<K, V> {}

/// The value as a `B`, if that is its type.
pub(crate) fn same_type<A: Plain, B>(value: A) -> Option<B> {
    if typeid::of::<B>() != TypeId::of::<A>() {
        return None;
    }
    let value = std::mem::ManuallyDrop::new(value);
    // SAFETY: `A` holds no lifetimes, so a type with its id is `A`; the original is not dropped.
    Some(unsafe { ptr::from_ref(&*value).cast::<B>().read() })
}

/// The tensor as an `A`, if that is its type.
pub(crate) fn tensor_as<A: ?Sized>(tensor: &Tensor) -> Option<&A> {
    // SAFETY: `A` is `Tensor`, which holds no lifetimes, so both references are the same type.
    (typeid::of::<A>() == TypeId::of::<Tensor>())
        .then(|| unsafe { std::mem::transmute_copy::<&Tensor, &A>(&tensor) })
}

/// Where a method keeps an argument that replaces the one it was given.
#[derive(Default)]
pub enum Slot {
    /// Nothing replaces it.
    #[default]
    Empty,
    /// A tensor, or an option of one.
    Tensor(Option<Tensor>),
    /// A value of another type that is known at run time.
    Any(Box<AnyValue>),
}

impl Slot {
    /// An empty slot.
    #[inline(always)]
    pub const fn new() -> Self {
        Self::Empty
    }

    /// Keeps `new` and gives it out in the place of `original`, which is a tensor or an option of one;
    /// anything else is given back as it was.
    pub(crate) fn put<'s, T: ?Sized>(&'s mut self, original: &'s T, new: Tensor) -> &'s T {
        *self = Self::Tensor(Some(new));
        let Self::Tensor(kept) = self else { return original };
        let kept: &'s Option<Tensor> = kept;
        if typeid::of::<T>() == TypeId::of::<Option<Tensor>>() {
            // SAFETY: `T` is `Option<Tensor>`, so both references are the same type.
            return unsafe { std::mem::transmute_copy::<&'s Option<Tensor>, &'s T>(&kept) };
        }
        if let (Some(kept), true) = (kept, typeid::of::<T>() == TypeId::of::<Tensor>()) {
            // SAFETY: `T` is `Tensor`, so both references are the same type.
            return unsafe { std::mem::transmute_copy::<&'s Tensor, &'s T>(&kept) };
        }
        original
    }

    /// As `put`, for a value of a type without lifetimes, which is `known` to have none.
    pub(crate) fn put_any<'s, T: ?Sized>(
        &'s mut self,
        original: &'s T,
        new: AnyValue,
        known: PlainId,
    ) -> &'s T {
        let id = typeid::of::<T>();
        if id != known.get() || !new.is(id) {
            return original;
        }
        *self = Self::Any(Box::new(new));
        let Self::Any(kept) = self else { return original };
        let kept: *const () = ptr::from_ref(&*kept.value).cast();
        // SAFETY: `T` has no lifetimes, so its id says that it is the type of the value, hence sized, and a reference to
        // it is a plain pointer; the value is in an `Arc` that the slot keeps, and the slot is borrowed for 's.
        unsafe { std::mem::transmute_copy::<*const (), &'s T>(&kept) }
    }
}

/// Where a method keeps what takes the place of what its own references refer to. There may be any number of
/// them, a loop has many; each stays in its place until the method ends.
#[derive(Default)]
pub struct Kept(std::cell::OnceCell<Box<KeptTensor>>);

struct KeptTensor {
    tensor: Tensor,
    next: Kept,
}

impl Kept {
    /// Nothing yet.
    #[inline(always)]
    pub const fn new() -> Self {
        Self(std::cell::OnceCell::new())
    }

    /// Keeps `new` and gives it out in the place of `original`, which is a tensor; anything else is given back
    /// as it was.
    pub(crate) fn put<'k, T: ?Sized>(&'k self, original: &'k T, new: Tensor) -> &'k T {
        if typeid::of::<T>() != TypeId::of::<Tensor>() {
            return original;
        }
        let mut last = self;
        while let Some(kept) = last.0.get() {
            last = &kept.next;
        }
        let kept: &'k Tensor =
            &last.0.get_or_init(|| Box::new(KeptTensor { tensor: new, next: Self::new() })).tensor;
        // SAFETY: `T` is `Tensor`, so both references are the same type.
        unsafe { std::mem::transmute_copy::<&'k Tensor, &'k T>(&kept) }
    }
}

impl Drop for Kept {
    /// One after the other, and not one inside the other.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut kept) = next {
            next = kept.next.0.take();
        }
    }
}

/// A type of the user's with `#[derive(HookValue)]` and without lifetime parameters.
///
/// # Safety
/// The type must have no lifetime parameter, nor be built from types that were given one: values with its id are
/// handed out as values of this very type. The derive implements this where it is written on a type without any
/// parameters, and `#[derive(..)]` stands on the definition of a type, never on an alias.
pub unsafe trait Derived: Sized + 'static {
    /// A copy for `get_any`, where the type can be cloned.
    fn copy(&self) -> Option<AnyValue>;
}

/// Stands for such a type where a [`Plain`] one is wanted.
#[repr(transparent)]
pub(crate) struct OfDerived<T>(pub T);

// SAFETY: who implements `Derived` vouches that the type has no lifetimes. `get_mut` compares with the id of `T`
// because of the method below.
unsafe impl<T: Derived> Plain for OfDerived<T> {
    fn id() -> TypeId {
        TypeId::of::<T>()
    }
}

/// Stands for the result of computing such a type.
#[repr(transparent)]
pub(crate) struct ResultOfDerived<T>(pub candle_core::Result<T>);

// SAFETY: as above; candle's error has no lifetimes either.
unsafe impl<T: Derived> Plain for ResultOfDerived<T> {
    fn id() -> TypeId {
        TypeId::of::<candle_core::Result<T>>()
    }
}

// ---------------------------------------------------------------------------------------------
// 2. The module behind a receiver
// ---------------------------------------------------------------------------------------------

/// How to call a module of type `T` with one tensor, where that is possible.
pub trait Caller<T: ?Sized> {
    /// Does it matter whether the module is called for training?
    const MINDS_TRAINING: bool = false;

    /// Is every `T` called in this way, whatever lifetimes it has? So it is where `call` was written for all of them:
    /// for a type of candle's by its name, or through the table of a trait object, which was made where the
    /// lifetimes were known.
    const FOR_ALL_LIFETIMES: bool = false;

    /// Calls `module`, or says that it cannot be called this way.
    fn call(module: &T, input: &Tensor, train: bool) -> Option<candle_core::Result<Tensor>>;
}

/// What is known of a receiver type, such as `&Box<Linear>`: how to get to the `Linear`.
#[derive(Clone, Copy)]
pub(crate) struct Receiver {
    /// The module's own type.
    pub module: TypeId,
    locate: unsafe fn(*const ()) -> Option<*const ()>,
    holder: unsafe fn(*const ()) -> Option<(*const (), TypeId)>,
    call: unsafe fn(*const (), &Tensor, bool) -> Option<candle_core::Result<Tensor>>,
    of: TypeId,
    /// What is known of the lifetimes of a module of this type.
    lifetimes: Lifetimes,
    /// Is there a box around the module, which may be known by its own address?
    pub boxed: bool,
}

impl Receiver {
    /// The module behind `receiver`; none for an empty `Option`.
    pub fn module<'r>(&self, receiver: Erased<'r>) -> Option<Erased<'r>> {
        if self.of != receiver.type_id {
            return None;
        }
        // SAFETY: `receivers` made this entry for the type with this id, and the value is borrowed.
        let pointer = unsafe { (self.locate)(receiver.pointer) }?;
        // What a receiver gives access to lives at least as long as the receiver is borrowed.
        Some(Erased { pointer, type_id: self.module, bytes: 0, life: PhantomData })
    }

    /// Where the module behind `receiver` is, and its type.
    pub fn place_of(&self, receiver: Erased<'_>) -> (usize, TypeId) {
        self.module(receiver).map_or((0, self.module), |module| (module.address(), module.type_id()))
    }

    /// The box behind `receiver` that holds the module, where there is one.
    pub fn holder<'r>(&self, receiver: Erased<'r>) -> Option<Erased<'r>> {
        if self.of != receiver.type_id {
            return None;
        }
        // SAFETY: as in `module`.
        let (pointer, type_id) = unsafe { (self.holder)(receiver.pointer) }?;
        Some(Erased { pointer, type_id, bytes: 0, life: PhantomData })
    }

    /// Calls the module behind `receiver`; none where it cannot be called with one tensor, or
    /// [must not be](Self::may_call).
    pub fn call(
        &self,
        receiver: Erased<'_>,
        input: &Tensor,
        train: bool,
    ) -> Option<candle_core::Result<Tensor>> {
        if !self.may_call(receiver) {
            return None;
        }
        // SAFETY: the value is a `W` up to lifetimes, as in `module`. `may_call` says that those of the module are
        // the ones that `C` was chosen for, or that they do not matter to it; what is around the module, a
        // reference or a box, is only looked through.
        unsafe { (self.call)(receiver.pointer, input, train) }
    }

    /// May the module behind `receiver` be called as what the model was found to hold? Types are compared without
    /// their lifetimes, and `Module` may be implemented for `Leaf<'static>` alone. So a `Leaf` that stands where the
    /// walk over the model found one is called only if it is the one that the model holds now.
    pub fn may_call(&self, receiver: Erased<'_>) -> bool {
        let is_it = || match self.lifetimes {
            Lifetimes::DoNotMatter => true,
            Lifetimes::Matter => {
                self.module(receiver).is_some_and(|module| is_held(module.address(), self.module))
            }
        };
        self.of == receiver.type_id && is_it()
    }
}

unsafe fn locate<W: View<T>, T: ?Sized>(pointer: *const ()) -> Option<*const ()> {
    // SAFETY: the caller vouches that a `W` is borrowed here.
    let viewed = unsafe { &*pointer.cast::<W>() }.view()?;
    Some(ptr::from_ref(viewed).cast())
}

unsafe fn holder<W: View<T>, T: ?Sized>(pointer: *const ()) -> Option<(*const (), TypeId)> {
    // SAFETY: the caller vouches that a `W` is borrowed here.
    unsafe { &*pointer.cast::<W>() }.holder()
}

unsafe fn call<W: View<T>, T: ?Sized, C: Caller<T>>(
    pointer: *const (),
    input: &Tensor,
    train: bool,
) -> Option<candle_core::Result<Tensor>> {
    // SAFETY: the caller vouches that a `W` is borrowed here.
    C::call(unsafe { &*pointer.cast::<W>() }.view()?, input, train)
}

fn receiver<W: View<T>, T: ?Sized, C: Caller<T>>(of: TypeId, lifetimes: Lifetimes) -> (TypeId, Receiver) {
    let module = typeid::of::<T>();
    let (locate, holder, call) = (locate::<W, T> as _, holder::<W, T> as _, call::<W, T, C> as _);
    (of, Receiver { module, locate, holder, call, of, lifetimes, boxed: W::BOXED })
}

/// Every type through which instrumented code may reach a module of type `T`, but for `T` itself.
pub(crate) fn receivers<'a, T: ?Sized + 'a, C: Caller<T>>() -> Vec<(TypeId, Receiver)> {
    let lifetimes = Lifetimes::of::<T, C>();
    macro_rules! list {
        ($($ty:ty),* $(,)?) => { vec![$(receiver::<$ty, T, C>(typeid::of::<$ty>(), lifetimes)),*] };
    }
    let mut all = list!(
        &'a T,
        &'a mut T,
        &'a &'a T,
        &'a mut &'a T,
        &'a &'a mut T,
        &'a mut &'a mut T,
        Box<T>,
        &'a Box<T>,
        &'a mut Box<T>,
        std::sync::Arc<T>,
        &'a std::sync::Arc<T>,
        &'a mut std::sync::Arc<T>,
        std::rc::Rc<T>,
        &'a std::rc::Rc<T>,
        std::cell::Ref<'a, T>,
        std::cell::RefMut<'a, T>,
        std::sync::MutexGuard<'a, T>,
        std::sync::RwLockReadGuard<'a, T>,
        std::sync::RwLockWriteGuard<'a, T>,
        Option<&'a T>,
        &'a Option<&'a T>,
        Option<&'a mut T>,
        Option<&'a Box<T>>,
        &'a Option<&'a Box<T>>,
        Option<&'a std::sync::Arc<T>>,
        &'a Option<&'a std::sync::Arc<T>>,
    );
    let of = typeid::of::<T>();
    // Half of the pointer to an unsized module says where it is, and is not enough to call it.
    let itself = Receiver {
        module: of,
        locate: |pointer| Some(pointer),
        holder: |_| None,
        call: |_, _, _| None,
        of,
        lifetimes,
        boxed: false,
    };
    all.push((of, itself));
    all
}

/// The entry for a sized `T` itself, which unlike an unsized one can be called.
pub(crate) fn receiver_itself<T, C: Caller<T>>() -> (TypeId, Receiver) {
    // `Itself` is transparent, so a pointer to a `T` is one to an `Itself<T>`.
    receiver::<Itself<T>, T, C>(typeid::of::<T>(), Lifetimes::of::<T, C>())
}

// ---------------------------------------------------------------------------------------------
// 3. What is current on a thread
// ---------------------------------------------------------------------------------------------

/// Something that borrows, by a name that does not.
pub(crate) trait Borrows {
    /// It.
    type With<'a>;
}

/// What is current on a thread: something on the stack of a function that is being executed.
pub(crate) struct Current<B: Borrows>(Cell<(*const B::With<'static>, Pause)>);

impl<B: Borrows> Current<B> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self(Cell::new((ptr::null(), Pause::NONE)))
    }

    /// Runs `f` with `it` as what is current on this thread.
    pub fn with<T>(current: &'static LocalKey<Self>, it: &B::With<'_>, f: impl FnOnce() -> T) -> T {
        struct Back<B: Borrows + 'static>(&'static LocalKey<Current<B>>, (*const B::With<'static>, Pause));
        impl<B: Borrows> Drop for Back<B> {
            fn drop(&mut self) {
                // On a thread that is being torn down nothing is current.
                let _ = self.0.try_with(|current| current.0.set(self.1));
            }
        }
        // The lifetime is forgotten here and nowhere else. The pointer leaves the thread-local as `Back` is dropped,
        // which is before this function returns or unwinds, hence while `it` is borrowed.
        let pointer = ptr::from_ref(it).cast::<B::With<'static>>();
        let _back = Back(current, current.with(|current| current.0.replace((pointer, Pause::now()))));
        f()
    }

    /// Gives what is current to `f`; none where nothing is, or where it is [paused].
    #[inline]
    pub fn get<T>(current: &'static LocalKey<Self>, f: impl FnOnce(&B::With<'_>) -> T) -> Option<T> {
        let (pointer, since) = current.with(|current| current.0.get());
        if pointer.is_null() || since != Pause::now() {
            return None;
        }
        // SAFETY: a pointer is current only inside `with`, which borrows what it points to for that time; the reference
        // cannot leave `f`, because its lifetime is unknown to it.
        Some(f(unsafe { &*pointer.cast::<B::With<'_>>() }))
    }
}

/// What the model of the current run can be asked: does it hold a module of this type at this address now, which is called
/// as a whole and has a size?
struct Holds<'m>(&'m dyn Fn(usize, TypeId) -> bool);

struct OfModel;

impl Borrows for OfModel {
    type With<'a> = Holds<'a>;
}

thread_local! {
    static MODEL: Current<OfModel> = const { Current::new() };
}

/// Runs `f`, which runs a model in the current run. The model is borrowed all that time, and `holds` says what it
/// [holds](is_held). Nothing is known of a model that is borrowed exclusively.
pub(crate) fn with_model<T>(holds: &dyn Fn(usize, TypeId) -> bool, f: impl FnOnce() -> T) -> T {
    Current::with(&MODEL, &Holds(holds), f)
}

/// Does the model of the current run hold this module now? Then a value of that type at that address is that module, since
/// two values that live at one time are not in one place. The walk over the model knows its lifetimes: it takes in
/// nothing that is not a [`Module`](candle_core::Module) with them.
fn is_held(address: usize, module: TypeId) -> bool {
    // What a walk over the model does is no part of the run, and may be annotated.
    Current::get(&MODEL, |model| paused(|| (model.0)(address, module))).unwrap_or(false)
}

// ---------------------------------------------------------------------------------------------
// 4. An allocator that counts
// ---------------------------------------------------------------------------------------------

/// An allocator that counts what another one hands out, for [`hookpoint::memory`](crate::memory).
///
/// It costs two additions that all threads share for every allocation: nothing beside the tensors of a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator<A>(A);

impl<A> CountingAllocator<A> {
    /// Counts what this allocator hands out: `std::alloc::System`, or one of another crate.
    pub const fn new(allocator: A) -> Self {
        Self(allocator)
    }
}

// SAFETY: every request is handed on as it is, and every answer handed back as it is, so what holds of the
// inner allocator holds of this one. Counting allocates nothing and does not panic: it adds to atomics.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let pointer = unsafe { self.0.alloc(layout) };
        if !pointer.is_null() {
            taken(layout.size());
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let pointer = unsafe { self.0.alloc_zeroed(layout) };
        if !pointer.is_null() {
            taken(layout.size());
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; the pointer came from the inner allocator.
        unsafe { self.0.dealloc(pointer, layout) };
        given_back(layout.size());
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise; the pointer came from the inner allocator.
        let moved = unsafe { self.0.realloc(pointer, layout, size) };
        if !moved.is_null() {
            taken(size);
            given_back(layout.size());
        }
        moved
    }
}

#[cfg(test)]
mod tests;
