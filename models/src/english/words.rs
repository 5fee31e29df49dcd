//! The words, and the frames that they are put into.

/// Names, each one token. `Mary` and `John` are a pair that training never sees.
pub const NAMES: &[&str] = &[
    "Mary", "Alice", "Bob", "John", "Tom", "James", "Anna", "Emma", "Paul", "Peter", "Sarah", "Laura", "Kate",
    "David", "Daniel", "Mark", "Lucy", "Julia", "Martin", "Simon", "Clara", "Helen", "Jack", "Henry", "Rose",
    "Nina", "Oscar", "Felix", "Maria", "Susan", "Robert", "Michael", "Linda", "Karen", "George", "Frank",
    "Grace", "Ruth", "Adam", "Victor", "Amy", "Lisa", "Kevin", "Brian", "Diana", "Ellen", "Steve", "Alan",
    "Jane", "Carol", "Eric", "Max", "Sophie", "Olivia", "Leo", "Hugo", "Irene", "Nora", "Samuel", "Joseph",
    "Sam", "Ben", "Luke", "Ryan", "Jason", "Justin", "Tyler", "Andrew", "Richard", "Charles", "Thomas",
    "William", "Edward", "Arthur", "Walter", "Oliver", "Lucas", "Nathan", "Aaron", "Ian", "Rachel", "Rebecca",
    "Jessica", "Jennifer", "Elizabeth", "Katie", "Emily", "Hannah", "Molly", "Megan", "Sara", "Vera", "Tina",
    "Gina", "Monica", "Erica", "Sandra", "Barbara", "Nancy", "Betty",
];

pub const PLACES: &[&str] = &[
    "store", "school", "park", "garden", "restaurant", "hospital", "office", "house", "station", "library",
    "museum", "market", "beach", "theater", "cafe", "zoo", "airport", "farm", "hotel", "church", "bank",
    "bakery", "bridge", "castle", "cinema", "gym", "harbor", "kitchen", "lake", "mall", "palace", "pool",
    "port", "shop", "stadium", "studio", "tower", "village", "university", "factory",
];

/// Things that can be handed to someone.
pub const OBJECTS: &[&str] = &[
    "drink", "ring", "snack", "book", "computer", "necklace", "basketball", "bone", "letter", "flower",
    "cake", "phone", "ticket", "map", "coat", "pencil", "apple", "orange", "umbrella", "gift", "ball", "cup",
    "watch", "picture", "kiss", "hat", "bag", "lamp", "knife", "spoon", "bottle", "card", "chair", "clock",
    "doll", "drum", "envelope", "fork", "guitar", "kite", "ladder", "mirror", "newspaper", "onion", "pen",
    "pizza", "radio", "sandwich", "shirt", "toy",
];

/// Two people, one of whom does something for the other. `{A}` and `{B}` are the two, `{S}` is the one of them
/// who acts, and the next word is the other one.
pub const INDIRECT_OBJECTS: &[&str] = &[
    "When {A} and {B} went to the {P}, {S} gave {O} to",
    "After {A} and {B} went to the {P}, {S} gave {O} to",
    "Then, {A} and {B} went to the {P}. {S} gave {O} to",
    "Then, {A} and {B} had a lot of fun at the {P}. {S} gave {O} to",
    "While {A} and {B} were working at the {P}, {S} gave {O} to",
    "When {A} and {B} got {O} at the {P}, {S} decided to give it to",
    "After {A} and {B} found {O} at the {P}, {S} decided to give it to",
    "Friends {A} and {B} found {O} at the {P}. {S} gave it to",
    "{A} and {B} met at the {P}, and {S} handed {O} to",
    "Yesterday {A} and {B} were at the {P}. {S} showed {O} to",
    "{A} was at the {P} with {B}. {S} wanted to give {O} to",
    "Today {A} met {B} at the {P}, and {S} sold {O} to",
    "When {A} and {B} had a long talk at the {P}, {S} said hello to",
    "{A} and {B} played at the {P}, and then {S} passed {O} to",
    "The friends {A} and {B} sat in the {P}. {S} sent {O} to",
];

/// One, and many.
pub const NOUNS: &[(&str, &str)] = &[
    ("dog", "dogs"), ("cat", "cats"), ("bird", "birds"), ("horse", "horses"), ("teacher", "teachers"),
    ("child", "children"), ("doctor", "doctors"), ("friend", "friends"), ("king", "kings"), ("car", "cars"),
    ("tree", "trees"), ("key", "keys"), ("box", "boxes"), ("river", "rivers"), ("mountain", "mountains"),
    ("student", "students"), ("boy", "boys"), ("girl", "girls"), ("man", "men"), ("woman", "women"),
    ("lion", "lions"), ("mouse", "mice"), ("queen", "queens"), ("farmer", "farmers"), ("soldier", "soldiers"),
    ("writer", "writers"), ("singer", "singers"), ("baker", "bakers"), ("pilot", "pilots"),
    ("artist", "artists"), ("tiger", "tigers"), ("rabbit", "rabbits"), ("door", "doors"),
    ("window", "windows"), ("table", "tables"), ("road", "roads"),
];

/// What one does, what many do, and what can follow.
pub const VERBS: &[(&str, &str, &[&str])] = &[
    ("is", "are", QUALITIES),
    ("was", "were", QUALITIES),
    ("looks", "look", QUALITIES),
    ("seems", "seem", QUALITIES),
    ("has", "have", &["a name", "a long way", "a lot of fun"]),
    ("stays", "stay", PLACE_AND_TIME),
    ("sleeps", "sleep", PLACE_AND_TIME),
    ("comes", "come", PLACE_AND_TIME),
    ("waits", "wait", PLACE_AND_TIME),
];

pub const QUALITIES: &[&str] =
    &["old", "small", "big", "new", "good", "nice", "happy", "sad", "tired", "strong", "green", "red"];

pub const PLACE_AND_TIME: &[&str] = &["here", "there", "today", "now", "again"];

pub const BETWEEN: &[&str] = &["near", "behind", "with", "above"];

/// Country, capital, language.
pub const COUNTRIES: &[(&str, &str, &str)] = &[
    ("France", "Paris", "French"), ("Italy", "Rome", "Italian"), ("Spain", "Madrid", "Spanish"),
    ("Germany", "Berlin", "German"), ("England", "London", "English"), ("Russia", "Moscow", "Russian"),
    ("Japan", "Tokyo", "Japanese"), ("China", "Beijing", "Chinese"), ("Greece", "Athens", "Greek"),
    ("Portugal", "Lisbon", "Portuguese"), ("Poland", "Warsaw", "Polish"), ("Sweden", "Stockholm", "Swedish"),
    ("Norway", "Oslo", "Norwegian"), ("Hungary", "Budapest", "Hungarian"), ("Egypt", "Cairo", "Arabic"),
    ("Turkey", "Ankara", "Turkish"), ("Finland", "Helsinki", "Finnish"), ("Denmark", "Copenhagen", "Danish"),
    ("Ukraine", "Kiev", "Ukrainian"), ("Romania", "Bucharest", "Romanian"),
    ("Bulgaria", "Sofia", "Bulgarian"), ("Thailand", "Bangkok", "Thai"), ("Vietnam", "Hanoi", "Vietnamese"),
    ("Iceland", "Reykjavik", "Icelandic"),
];

/// `{C}` is the country, `{K}` its capital, `{L}` its language; the last of them is the answer.
pub const COUNTRY_FACTS: &[&str] = &[
    "The capital of {C} is {K}",
    "{K} is the capital of {C}",
    "The people of {C} speak {L}",
    "In {K} they speak {L}",
    "The city of {K} is in {C}",
];

pub const OPPOSITES: &[(&str, &str)] = &[
    ("hot", "cold"), ("big", "small"), ("old", "new"), ("good", "bad"), ("up", "down"), ("left", "right"),
    ("day", "night"), ("black", "white"), ("fast", "slow"), ("long", "short"), ("happy", "sad"),
    ("open", "closed"), ("full", "empty"), ("first", "last"), ("rich", "poor"), ("wet", "dry"),
    ("high", "low"), ("early", "late"),
];

pub const SOUNDS: &[(&str, &str)] =
    &[("cow", "moo"), ("dog", "woof"), ("cat", "meow"), ("duck", "quack"), ("sheep", "baa"), ("bee", "buzz")];

/// Things that are said in order.
pub const SERIES: &[&[&str]] = &[
    &[
        "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
        "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
    ],
    &[
        "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18",
        "19", "20",
    ],
    &["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    &[
        "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
        "November", "December",
    ],
];
