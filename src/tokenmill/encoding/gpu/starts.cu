// Where pretokens start, for 32 bytes of text per call. Compiles as CUDA C++ (nvcc, NVRTC) and as C++17 for the host, where tests
// compare it with `tokenizers` and with starts.py.
//
// The text. Documents in UTF-8, one after the other, with a byte 0xFF (which UTF-8 never has) before, between and behind them: two
// or more at the beginning, and at the end up to a multiple of 32 bytes.
//
// The rules are those of pretoken_rules.py. They are not repeated here: a table has their results (`RuleTable.packed`). In words:
//   - A character has a role: a letter, a digit, white space, punctuation and so on. ASCII characters have a table of 128 bytes,
//     others one for all of Unicode.
//   - Which pretoken is open after a character is one of 16 states. State, role and what is ahead decide whether a pretoken starts
//     with a character, and what the next state is.
//   - What is ahead is the role of the next character; for an apostrophe the next two (`'s`, `'ll`). Two rules look further: the
//     first white space after a line break (does another line break follow in this run?), and upper case after letters without
//     case (is there only upper case up to the end of the word?).
//   - The state before the first character follows from the character before it, if that is one of those that fix the state: most
//     letters, nearly all punctuation, white space other than line breaks. If not, from characters further back.
//
// The cost of a call: one step per character, which is a look-up of the role and one of the result, plus one or two steps for the
// character before. Where the state is not fixed within REACH bytes, the call goes on with all states that are possible. As long
// as they agree, which is the rule, nothing is lost; if they do not, it starts again from BOUND bytes before.
//
// Bounds. No byte further than BOUND + 8 from the 32 bytes is read. `unsure` has a bit for each character for which that was not
// enough: whoever calls must then leave the document to another engine. Where `unsure` is 0, `starts` is exact. Beyond the
// bound are: digits in threes, in a run of more than BOUND bytes of digits; line breaks or slashes in such a run; white space
// after a line break that such a run of white space follows; and with split cases, marks among punctuation, or upper case after
// such a run of letters without case. With NFC, `unsure` also marks characters that NFC may change.

// A kernel gives each thread a word, copies `ascii` and `rules` to shared memory, and may copy the text of a block there, too, with
// BOUND + 8 bytes on either side: then most of the text is read from memory once.

#ifdef __CUDACC__
#define ON_DEVICE __device__ __forceinline__
#else
#define ON_DEVICE inline
#endif

namespace pretokens {

typedef unsigned char Byte;
typedef unsigned int Bits;  // 32 of them

// What a pattern needs beside its tables: `pattern_flags` in device_source.py.
enum PatternFlags { CONTRACTIONS = 1, ANY_CASE = 2, LINE_BREAKS = 4, CASES = 8, GROUPS = 16, NFC = 32 };

enum Limits { WORD_BYTES = 32, REACH = 12, BOUND = 128 };

// As in pretoken_rules.py.
enum Role {
  OTHER, APOSTROPHE, SLASH, OPENER, LETTER, UPPER, LOWER, MARK, ASCII_LETTER,
  NUMBER, SPACE, WHITE, NEWLINE, UNMATCHED, UNUSED, BORDER
};
enum RoleBits { ROLE = 0x0F, GROUP = 0x30, ALONE = 0x30, COMBINING = 0x40, COMPOSING = 0x80 };
enum Ahead {
  NOTHING = 0, BREAK_AHEAD = 1, LAST_WHITE = 2, WORD_AHEAD = 1, ONE_LETTER = 2, TWO_LETTERS = 3, UPPER_TO_END = 1,
  AFTER_APOSTROPHE = 2, UNKNOWN_AHEAD = 4
};
enum State { BETWEEN = 0, WORD = 4, BLANK_BREAK = 14, ALL_STATES = 0xFFFF };
enum Result { NEXT_STATE = 0x0F, IS_START = 0x80, NOT_FIXED = 0xFF, STEPS = 1024 };

const Byte BORDER_BYTE = 0xFF;

struct Tables {
  const Byte* ascii;  // the roles of the first 128 characters: in shared memory, if possible
  const Byte* roles;  // of all characters
  const Byte* rules;  // STEPS results by symbol and state, then for each symbol the state it fixes, or NOT_FIXED
};

struct Marks {
  Bits starts, unsure;
};

struct Character {
  int role, group, length;
  Byte flags;  // COMBINING, COMPOSING
};

ON_DEVICE bool is_word(int role) { return role >= LETTER && role <= ASCII_LETTER; }
ON_DEVICE bool is_white(int role) { return role >= SPACE && role <= NEWLINE; }

ON_DEVICE int lowest_bit(Bits bits) {
#ifdef __CUDA_ARCH__
  return __ffs(bits) - 1;
#else
  return __builtin_ctz(bits);
#endif
}

ON_DEVICE bool is_first_byte(Byte byte) { return (byte & 0xC0) != 0x80; }

ON_DEVICE long before(const Byte* text, long at) {
  do at--;
  while (!is_first_byte(text[at]));
  return at;
}

ON_DEVICE Character character_at(const Byte* text, long at, const Tables& tables) {
  Character result;
  Bits first = text[at];
  Byte found;
  if (first < 0x80) {
    result.length = 1;
    found = tables.ascii[first];
  } else if (first == BORDER_BYTE) {
    result.length = 1;
    found = BORDER;
  } else {
    Bits code = text[at + 1] & 0x3F;
    if (first < 0xE0) {
      result.length = 2;
      code |= (first & 0x1F) << 6;
    } else if (first < 0xF0) {
      result.length = 3;
      code = (first & 0x0F) << 12 | code << 6 | (text[at + 2] & 0x3F);
    } else {
      result.length = 4;
      code = (first & 0x07) << 18 | code << 12 | (text[at + 2] & 0x3F) << 6 | (text[at + 3] & 0x3F);
    }
    found = tables.roles[code];
  }
  result.role = found & ROLE;
  result.group = found & GROUP;
  result.flags = found & (COMBINING | COMPOSING);
  return result;
}

// Between two characters of different groups, and between any two of group ALONE, is a border.
template <int flags>
ON_DEVICE bool has_border_between(const Character& left, const Character& right) {
  return (flags & GROUPS) && (left.group != right.group || right.group == ALONE);
}

// The role of the character at a place behind `previous`.
template <int flags>
ON_DEVICE int role_behind(const Character& previous, const Byte* text, long at, const Tables& tables) {
  Character next = character_at(text, at, tables);
  return has_border_between<flags>(previous, next) ? BORDER : next.role;
}

// The number of letters of the contraction behind an apostrophe, or 0.
template <int flags>
ON_DEVICE int contraction(const Byte* text, long apostrophe) {
  Byte first = text[apostrophe + 1], second = text[apostrophe + 2];
  if (flags & ANY_CASE) {
    if (first == 0xC5 && second == 0xBF) return 1;  // U+017F, the long s
    if (first >= 'A' && first <= 'Z') first |= 0x20;
    if (second >= 'A' && second <= 'Z') second |= 0x20;
  }
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 1;
  if (second == 'e' && (first == 'r' || first == 'v')) return 2;
  return first == 'l' && second == 'l' ? 2 : 0;
}

// The two rules that look further, for a character whose run of white space or upper case may go on at `at`.
template <int flags>
ON_DEVICE int scan(const Character& previous, const Byte* text, long at, const Tables& tables) {
  Character last = previous;
  for (long end = at + BOUND; at < end;) {
    Character next = character_at(text, at, tables);
    int role = has_border_between<flags>(last, next) ? BORDER : next.role;
    if (previous.role == UPPER) {
      if (role != UPPER) return is_word(role) ? NOTHING : UPPER_TO_END;
    } else {
      if (role == NEWLINE) return BREAK_AHEAD;
      if (!is_white(role)) return NOTHING;
    }
    at += next.length;
    last = next;
  }
  return UNKNOWN_AHEAD;
}

// What is ahead of the character at `at`. What matters in a few states only is looked for only if one of `states` is among them.
template <int flags>
ON_DEVICE int ahead_of(const Character& here, const Byte* text, long at, const Tables& tables, Bits states) {
  if (is_word(here.role)) {
    int ahead = NOTHING;
    if ((flags & CASES) && here.role == UPPER && (states >> WORD & 1))
      ahead = scan<flags>(here, text, at + here.length, tables);
    if ((flags & CONTRACTIONS) && (text[at - 1] == '\'' || text[at - 2] == '\'')) ahead |= AFTER_APOSTROPHE;
    return ahead;
  }
  if (here.role == NUMBER || here.role == NEWLINE || here.role == BORDER) return NOTHING;
  int next = role_behind<flags>(here, text, at + here.length, tables);
  if (is_white(here.role)) {
    if (!is_white(next)) return next == BORDER ? NOTHING : LAST_WHITE;
    bool matters = (flags & LINE_BREAKS) && (states >> BLANK_BREAK & 1);
    return matters ? scan<flags>(here, text, at + here.length, tables) : NOTHING;
  }
  if (here.role == OPENER) return next == ASCII_LETTER ? WORD_AHEAD : NOTHING;
  if (!is_word(next)) return NOTHING;
  if ((flags & CONTRACTIONS) && here.role == APOSTROPHE) {
    int letters = contraction<flags>(text, at);
    if (letters) return letters == 1 ? ONE_LETTER : TWO_LETTERS;
  }
  return WORD_AHEAD;
}

// A place at or before `at` where reading can begin, not more than `reach` bytes back, and the states that are possible there.
template <int flags>
ON_DEVICE long entry(const Byte* text, long at, const Tables& tables, int reach, Bits* states) {
  long end = at - reach;
  Character right = character_at(text, at, tables);
  while (at > end) {
    long left_at = at > 0 ? before(text, at) : -1;
    if (left_at < 0 || text[left_at] == BORDER_BYTE) {
      *states = 1u << BETWEEN;
      return at;
    }
    Character left = character_at(text, left_at, tables);
    if (has_border_between<flags>(left, right)) {
      *states = 1u << BETWEEN;
      return at;
    }
    int ahead = ahead_of<flags>(left, text, left_at, tables, 0);
    int state = tables.rules[STEPS + (left.role | ahead << 4)];
    if (state != NOT_FIXED) {
      *states = 1u << state;
      return at;
    }
    at = left_at;
    right = left;
  }
  *states = ALL_STATES;
  return at;
}

// Whether NFC may change a character.
ON_DEVICE bool is_unstable(const Character& here, const Byte* text, long at, const Tables& tables) {
  if (here.flags & COMPOSING) return true;
  if (!(here.flags & COMBINING)) return false;
  return character_at(text, before(text, at), tables).flags != 0;
}

// The marks of the 32 bytes from `begin` on, reading from `reach` bytes before.
template <int flags>
ON_DEVICE Marks mark_from(const Byte* text, long begin, const Tables& tables, int reach) {
  Marks marks = {0, 0};
  long end = begin + WORD_BYTES;
  long first = begin;
  while (!is_first_byte(text[first])) first++;
  Bits states;
  long at = entry<flags>(text, first, tables, reach, &states);
  Character last = {BORDER, 0, 0, 0};
  bool is_entry = true;
  while (at < end) {
    Character here = character_at(text, at, tables);
    if (!is_entry && has_border_between<flags>(last, here)) states = 1u << BETWEEN;
    int ahead = ahead_of<flags>(here, text, at, tables, states);
    int symbol = here.role | (ahead & 3) << 4;
    Bits next = 0, yes = 0, no = 0;
    for (Bits rest = states; rest; rest &= rest - 1) {
      Byte result = tables.rules[symbol << 4 | lowest_bit(rest)];
      next |= 1u << (result & NEXT_STATE);
      if (result & IS_START) yes = 1;
      else no = 1;
    }
    if (at >= begin) {
      Bits bit = 1u << (at - begin);
      if (yes) marks.starts |= bit;
      if ((yes && no) || (ahead & UNKNOWN_AHEAD)) marks.unsure |= bit;
      if ((flags & NFC) && here.flags && is_unstable(here, text, at, tables)) marks.unsure |= bit;
    }
    states = next;
    at += here.length;
    last = here;
    is_entry = false;
  }
  return marks;
}

// The marks of the bytes 32 * word to 32 * word + 31. Bits of bytes that are no first bytes of a character, and of borders, are 0.
template <int flags>
ON_DEVICE Marks mark_word(const Byte* text, long word, const Tables& tables) {
  Marks marks = mark_from<flags>(text, word * WORD_BYTES, tables, REACH);
  if (marks.unsure) marks = mark_from<flags>(text, word * WORD_BYTES, tables, BOUND);
  return marks;
}

}  // namespace pretokens
