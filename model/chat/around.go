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
