package chat

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Around is what a template writes before and after a place in a conversation: behind the first n bytes of what a message says. What
// stands before it does not depend on the rest of that message.
func (t *Template) Around(ctx context.Context, messages []Message, o Options, message, n int) (before, after string, err error) {
	marked := slices.Clone(messages)
	m := marked[message]
	marked[message] = m.WithText(m.Content[:n] + probeText + m.Content[n:])
	text, err := t.Render(ctx, marked, o)
	if err != nil {
		return "", "", err
	}
	before, after, found := strings.Cut(text, probeText)
	if !found {
		return "", "", fmt.Errorf("the chat template does not tell what message %d says", message)
	}
	return before, after, nil
}

// CommonPrefix is how many of the first bytes of two texts are equal, whole characters.
func CommonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(a) && a[n]&0xc0 == 0x80 {
		n--
	}
	return n
}

// Range is a part of a text, in bytes: From up to To.
type Range struct{ From, To int }

// Contents are where, in the text that a conversation is rendered to, stands what its messages say, and what the tools are told by. A
// message that has no content, or of which the template tells nothing, has an empty range at the end of the one before it. The text is
// rendered once more with a mark before and behind every content: without the marks it must be the same, or else message by message.
func (t *Template) Contents(ctx context.Context, messages []Message, o Options, text string) (contents []Range, tools Range, err error) {
	contents, ok := t.markedContents(ctx, messages, o, text)
	if !ok {
		if contents, err = t.eachContent(ctx, messages, o, text); err != nil {
			return nil, tools, err
		}
	}
	if len(o.Tools) > 0 {
		tools = t.toolsRange(ctx, messages, o, text, contents[0].From)
	}
	return contents, tools, nil
}

// eachContent are the contents, message by message.
func (t *Template) eachContent(ctx context.Context, messages []Message, o Options, text string) (contents []Range, err error) {
	at := 0
	for i, m := range messages {
		r := Range{at, at}
		if !m.NoContent {
			before, _, err := t.Around(ctx, messages, o, i, 0)
			if err == nil {
				r.From = max(at, CommonPrefix(before, text))
				before, _, err = t.Around(ctx, messages, o, i, len(m.Content))
			}
			if err == nil {
				r.To = max(r.From, CommonPrefix(before, text))
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		at = r.To
		contents = append(contents, r)
	}
	return contents, nil
}

// markedContents are the contents of all messages by one rendering; ok is false where marks change it.
func (t *Template) markedContents(ctx context.Context, messages []Message, o Options, text string) (contents []Range, ok bool) {
	marked := slices.Clone(messages)
	for i, m := range marked {
		if !m.NoContent {
			marked[i] = m.WithText(probeText + m.Content + probeText)
		}
	}
	with, err := t.Render(ctx, marked, o)
	parts := strings.Split(with, probeText)
	if err != nil || strings.Join(parts, "") != text {
		return nil, false
	}
	at := 0
	next := func() int {
		if len(parts) > 1 {
			at, parts = at+len(parts[0]), parts[1:]
			return at
		}
		ok = false
		return at
	}
	ok = true
	for _, m := range messages {
		r := Range{at, at}
		if !m.NoContent {
			r.From = next()
			r.To = next()
			ok = ok && text[r.From:r.To] == m.Content
		}
		contents = append(contents, r)
	}
	return contents, ok && len(parts) == 1
}

// toolsRange is what the text has that it would not have without tools; of a template that has to be given some, all that stands before
// the first content.
func (t *Template) toolsRange(ctx context.Context, messages []Message, o Options, text string, first int) Range {
	o.Tools = nil
	without, err := t.Render(ctx, messages, o)
	if err != nil {
		return Range{0, first}
	}
	// What both texts begin with and what both end with may overlap: a "<" that stands before the tools stands behind them, too.
	from, alike := CommonPrefix(text, without), 0
	for alike < min(len(text), len(without)) && text[len(text)-1-alike] == without[len(without)-1-alike] {
		alike++
	}
	to, more := len(text)-alike, max(0, len(text)-len(without))
	from, to = max(0, min(from, to-more)), max(to, min(from+more, len(text)))
	for to < len(text) && text[to]&0xc0 == 0x80 { // whole characters
		to++
	}
	for from > 0 && text[from]&0xc0 == 0x80 {
		from--
	}
	return Range{from, to}
}
