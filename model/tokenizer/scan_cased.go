package tokenizer

// The patterns of o200k and Tekken also tell cases apart: a word is capitals, then
// small letters. Letters without case and marks count as both.

// smallWord returns the end of [capitals]*[small]+ at byte i, or -1.
func smallWord(s string, i int) int {
	end := -1 // behind the last character that could be the small letters' only one
	for i < len(s) {
		k, n := traitsAt(s, i)
		if k&bothCase == small {
			return stretchEnd(s, i+n, small)
		}
		if k&bothCase == 0 {
			break
		}
		i += n
		if k&bothCase == bothCase {
			end = i
		}
	}
	return end
}

// capitalWord returns the end of [capitals]+[small]* at byte i, where smallWord has
// found nothing, or -1: what follows the capitals is then no small letter.
func capitalWord(s string, i int) int {
	if end := stretchEnd(s, i, capital); end > i {
		return end
	}
	return -1
}

// scanO200k is the pattern of o200k: GPT-4o and gpt-oss, Phi-4-mini, Llama 4.
func scanO200k(s string, i int) int { return scanCased(s, i, 3, true) }

// scanTekken is Tekken's: Mistral Nemo, Small 3, Ministral.
func scanTekken(s string, i int) int { return scanCased(s, i, 1, false) }

func scanCased(s string, i, digits int, contractions bool) int {
	c, n := classAt(s, i)
	if c == number {
		return numbersEnd(s, i+n, digits-1)
	}
	// One character that is neither newline, letter nor number may open the word.
	// A mark may do that too, and be its first character as well.
	prefix := c == space || c == other
	end := -1
	if prefix {
		end = smallWord(s, i+n)
	}
	if end < 0 {
		end = smallWord(s, i)
	}
	if end < 0 && prefix {
		end = capitalWord(s, i+n)
	}
	if end < 0 {
		end = capitalWord(s, i)
	}
	if end >= 0 {
		if contractions {
			end += contraction(s[end:])
		}
		return end
	}
	j := i
	if s[i] == ' ' {
		j++
	}
	if end := stretchEnd(s, j, other); end > j {
		for end < len(s) && (s[end] == '\r' || s[end] == '\n' || s[end] == '/') {
			end++
		}
		return end
	}
	return spaces(s, i, true)
}

// numbersEnd returns the end of up to n numbers from byte i on.
func numbersEnd(s string, i, n int) int {
	for ; n > 0 && i < len(s); n-- {
		c, size := classAt(s, i)
		if c != number {
			break
		}
		i += size
	}
	return i
}
