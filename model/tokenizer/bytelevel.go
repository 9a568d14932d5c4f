package tokenizer

import "strings"

// GPT-2's byte alphabet: a printable character for each byte. Bytes that are
// printable in Latin-1 stand for themselves, the others for U+0100 and up, in
// order.

var byteRunes = func() (runes [256]rune) {
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		if !('!' <= r && r <= '~' || '¡' <= r && r <= '¬' || '®' <= r && r <= 'ÿ') {
			r = next
			next++
		}
		runes[b] = r
	}
	return runes
}()

// byteOf is the inverse of byteRunes; -1 where a character stands for no byte.
var byteOf = func() (bytes [0x144]int16) {
	for r := range bytes {
		bytes[r] = -1
	}
	for b, r := range byteRunes {
		bytes[r] = int16(b)
	}
	return bytes
}()

// alphabetBytes returns the bytes that a token in the byte alphabet stands for;
// ok is false if it has a character outside the alphabet.
func alphabetBytes(token string) (string, bool) {
	var raw strings.Builder
	raw.Grow(len(token))
	for _, r := range token {
		if int(r) >= len(byteOf) || byteOf[r] < 0 {
			return "", false
		}
		raw.WriteByte(byte(byteOf[r]))
	}
	return raw.String(), true
}
