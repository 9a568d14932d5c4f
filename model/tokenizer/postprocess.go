package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// parsePostProcessor returns the ids to put before and after a text. Only the
// template for one text is used, never the one for a pair.
func parsePostProcessor(raw json.RawMessage, t *Tokenizer) (prefix, suffix []int32, err error) {
	if isNull(raw) {
		return nil, nil, nil
	}
	return parsePostProcessorAt(raw, t, 0)
}

func parsePostProcessorAt(raw json.RawMessage, t *Tokenizer, depth int) (prefix, suffix []int32, err error) {
	err = component(raw, depth, map[string]func() error{
		// As a post-processor it only trims offsets, which are not kept.
		"ByteLevel": func() error { return decodeStrict(raw, new(byteLevelConfig)) },
		"TemplateProcessing": func() error {
			prefix, suffix, err = parseTemplate(raw, t)
			return err
		},
		"Sequence": func() error {
			var c struct {
				Type       string            `json:"type"`
				Processors []json.RawMessage `json:"processors"`
			}
			if err := decodeStrict(raw, &c); err != nil {
				return err
			}
			return sequenceParts("processors", c.Processors, func(_ int, part json.RawMessage) error {
				before, after, err := parsePostProcessorAt(part, t, depth+1)
				prefix, suffix = append(before, prefix...), append(suffix, after...)
				if err == nil && len(prefix)+len(suffix) > maxAffix {
					err = errAffix
				}
				return err
			})
		},
	})
	return prefix, suffix, err
}

var errAffix = fmt.Errorf("more than %d ids around a text", maxAffix)

// templatePart is one place of a template: a special token or a text.
type templatePart struct {
	SpecialToken *templateRef `json:"SpecialToken"`
	Sequence     *templateRef `json:"Sequence"`
}

type templateRef struct {
	ID     string `json:"id"`
	TypeID int    `json:"type_id"` // segment ids are a thing of BERT's
}

func parseTemplate(raw json.RawMessage, t *Tokenizer) (prefix, suffix []int32, err error) {
	var c struct {
		Type          string         `json:"type"`
		Single        []templatePart `json:"single"`
		Pair          []templatePart `json:"pair"`
		SpecialTokens map[string]struct {
			ID     string   `json:"id"`
			IDs    []int32  `json:"ids"`
			Tokens []string `json:"tokens"`
		} `json:"special_tokens"`
	}
	if err := decodeStrict(raw, &c); err != nil {
		return nil, nil, err
	}
	seen := false
	for i, part := range c.Single {
		switch {
		case part.Sequence != nil && part.SpecialToken == nil:
			if seen || part.Sequence.ID != "A" {
				return nil, nil, fmt.Errorf("single[%d]: sequence %q, want one sequence, \"A\"", i, part.Sequence.ID)
			}
			seen = true
		case part.SpecialToken != nil && part.Sequence == nil:
			token, ok := c.SpecialTokens[part.SpecialToken.ID]
			if !ok {
				return nil, nil, fmt.Errorf("single[%d]: special token %q is not in special_tokens", i, part.SpecialToken.ID)
			}
			if len(prefix)+len(suffix)+len(token.IDs) > maxAffix {
				return nil, nil, fmt.Errorf("single[%d]: %w", i, errAffix)
			}
			for _, id := range token.IDs {
				if !t.hasToken(id) {
					return nil, nil, fmt.Errorf("special_tokens: %q: id %d is not in the vocabulary", part.SpecialToken.ID, id)
				}
			}
			if seen {
				suffix = append(suffix, token.IDs...)
			} else {
				prefix = append(prefix, token.IDs...)
			}
		default:
			return nil, nil, fmt.Errorf("single[%d]: want a SpecialToken or a Sequence", i)
		}
	}
	if !seen {
		return nil, nil, errors.New("single: no sequence \"A\"")
	}
	return slices.Clip(prefix), slices.Clip(suffix), nil
}
