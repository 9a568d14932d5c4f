package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// Added tokens that a folder lists outside tokenizer.json. What transformers 4.57
// does with them is done here: they are added one after the other, and one that the
// vocabulary does not have gets the next free id, whatever id the file gives it.

func sortByID(tokens []addedToken) {
	slices.SortFunc(tokens, func(a, b addedToken) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Content, b.Content))
	})
}

// addLegacy takes over special_tokens_map.json and added_tokens.json; either
// may be nil. They count where tokenizer_config.json has no added_tokens_decoder.
func (c *configFile) addLegacy(specialMap, added []byte) error {
	if c.AddedByID != nil {
		return nil
	}
	if specialMap != nil {
		additional := c.Additional
		c.Additional = nil
		if err := json.Unmarshal(specialMap, &c.specialNames); err != nil {
			return fmt.Errorf("special_tokens_map.json: %w", describeJSON(specialMap, err))
		}
		c.Additional = append(additional, c.Additional...)
	}
	if added == nil {
		return nil
	}
	var ids map[string]int
	if err := json.Unmarshal(added, &ids); err != nil {
		return fmt.Errorf("added_tokens.json: %w", describeJSON(added, err))
	}
	special := make(map[string]bool)
	for _, token := range c.named() {
		special[token.Content] = true
	}
	for content, id := range ids {
		c.Added = append(c.Added, addedToken{ID: id, Content: content, Special: special[content], Normalized: !special[content]})
	}
	sortByID(c.Added)
	return nil
}

// named are the special tokens by role, in the order in which they are added.
func (c *specialNames) named() []namedToken {
	var all []namedToken
	for _, token := range []namedToken{c.BOS, c.EOS, c.UNK, c.SEP, c.PAD, c.CLS, c.MASK} {
		if token.Content != "" {
			all = append(all, token)
		}
	}
	return slices.Concat(all, c.Additional, c.Extra)
}

// roles is how many of named have a role of their own.
func (c *specialNames) roles() int { return len(c.named()) - len(c.Additional) - len(c.Extra) }

// extraTokens returns the tokens to add to tokenizer.json's, with ids.
//
// A token named for a role that the vocabulary does not have is left out, since
// folders name padding tokens that their model has no row for; it takes its id all the
// same.
func (c *configFile) extraTokens(listed []addedToken, m model) []addedToken {
	have := make(map[string]bool, len(listed))
	taken := make(map[int]bool, len(listed))
	size := m.GetVocabSize()
	next := size
	for _, a := range listed {
		have[a.Content] = true
		taken[a.ID] = true
		next = max(next, a.ID+1)
	}
	var out []addedToken
	add := func(a addedToken, known bool) {
		if a.Content == "" || have[a.Content] {
			return
		}
		have[a.Content] = true
		if id, ok := m.TokenToId(a.Content); ok {
			a.ID = id
		} else {
			a.ID = next
			next++
			if known {
				return
			}
		}
		out = append(out, a)
	}
	special := make(map[string]bool)
	named := c.named()
	for _, token := range named {
		special[token.Content] = true
	}
	for _, a := range c.Added {
		// Of two tokens for one id that of tokenizer.json counts, if the other is
		// from added_tokens.json.
		if c.AddedByID == nil && taken[a.ID] {
			continue
		}
		a.Special = a.Special || special[a.Content]
		add(a, false)
	}
	for i, token := range named {
		token.Special = true
		add(token.addedToken, i < c.roles())
	}
	return out
}

// members calls take with the members of a JSON object as they stand.
func members[T any](data []byte, take func(name string, value T)) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value T
		if err := d.Decode(&value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		take(fmt.Sprint(name), value)
	}
	return nil
}
