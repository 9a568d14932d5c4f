package serving

import (
	"strings"
	"unicode/utf8"

	"glimpse/model/tokenizer"
)

// textLogProbs are the log probabilities of /v1/completions. What stands for a token that follows nothing is null.
type textLogProbs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogProbs []*float64           `json:"token_logprobs"`
	TopLogProbs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"` // characters of the text before the token
}

// textTokens follows tokens through the text that they are told with: an answer's, before them the tokens of a prompt that is
// echoed.
type textTokens struct {
	tokenizer *tokenizer.Tokenizer
	stream    *tokenizer.Stream
	keep      []int32
	at        int // characters so far

	prompt []int32 // tokens of it that are to come
	echoed int     // its characters
	silent int     // the first of its tokens, that are not in the text
	first  bool    // its first token, which nothing is told of, is to come
}

func (x *exchange) newTextTokens(prompt []int32, echo string) *textTokens {
	t := &textTokens{tokenizer: x.server.model.Tokenizer, keep: x.keep}
	if t.stream = t.tokenizer.NewStream(true, t.keep...); !x.promptLogProbs {
		return t
	}
	t.stream, t.prompt, t.echoed, t.first = t.tokenizer.NewStream(false), prompt, utf8.RuneCountInString(echo), true
	for t.silent < len(prompt) && t.tokenizer.IsSpecial(prompt[t.silent]) {
		if token, _ := t.tokenizer.IDToToken(prompt[t.silent]); strings.HasPrefix(echo, token) {
			break
		}
		t.silent++
	}
	return t
}

// offset is where a token begins. A part of a character begins where the character does.
func (t *textTokens) offset(id int32) int {
	at := t.at
	if t.silent > 0 {
		t.silent--
	} else {
		t.at += utf8.RuneCountInString(t.stream.Push(id))
	}
	if len(t.prompt) > 0 {
		at, t.at = min(at, t.echoed), min(t.at, t.echoed)
		if t.prompt = t.prompt[1:]; len(t.prompt) == 0 {
			t.at, t.stream = t.echoed, t.tokenizer.NewStream(true, t.keep...)
		}
	}
	return at
}

// addTokens adds the tokens that follow to those before.
func (t *textTokens) addTokens(l *textLogProbs, tokens []tokenLogProb) {
	one := func(id int32, logProb *float64, top map[string]float64) {
		l.Tokens, l.TextOffset = append(l.Tokens, t.tokenText(id)), append(l.TextOffset, t.offset(id))
		l.TokenLogProbs, l.TopLogProbs = append(l.TokenLogProbs, logProb), append(l.TopLogProbs, top)
	}
	if t.first {
		t.first = false
		one(t.prompt[0], nil, nil)
	}
	for _, of := range tokens {
		top := make(map[string]float64)
		for i := len(of.top) - 1; i >= 0; i-- { // of those whose texts are alike, parts of characters, the likeliest stays
			top[t.tokenText(of.top[i].ID)] = of.top[i].LogProb
		}
		if _, ok := top[t.tokenText(of.id)]; !ok {
			top[t.tokenText(of.id)] = of.logProb
		}
		one(of.id, &of.logProb, top)
	}
}

// tokenText is a token's own text, as far as it is characters.
func (t *textTokens) tokenText(id int32) string {
	return strings.ToValidUTF8(t.tokenizer.Piece(id), "\uFFFD")
}
