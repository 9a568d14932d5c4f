package serving

import (
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// IgnoredHeader names the fields of a request that changed nothing.
const IgnoredHeader = "X-Glimpse-Ignored"

// Bounds of reports about ignored fields.
const (
	maxIgnored      = 32 // names, of an answer's header and of a line of the log
	maxIgnoredName  = 100
	ignoredInterval = time.Minute // between two lines of the log
)

// ignoredFields are the ignored fields of one request, whose goroutine alone has them.
type ignoredFields struct {
	strict bool // they are refused
	header http.Header
	names  []string
}

// ignoredKey is where ignore finds them in the context of a request.
type ignoredKey struct{}

// index is of an element of a list: all of them are named as one.
var index = regexp.MustCompile(`\[\d+\]`)

// ignore names a field of a request, such as messages[0].name, that does not change the answer though it might be meant to.
// It is an error where the server is strict. It must be called before the answer begins.
func ignore(ctx context.Context, field string) error {
	f, ok := ctx.Value(ignoredKey{}).(*ignoredFields)
	if !ok {
		return nil
	}
	if f.strict {
		return refuse(field, "unknown field")
	}
	field = index.ReplaceAllString(field, "[]")
	if strings.ContainsFunc(field, func(c rune) bool { return c <= ' ' || c > '~' || c == ',' || c == '"' }) {
		field = strconv.QuoteToASCII(field)
	}
	field = field[:min(len(field), maxIgnoredName)]
	switch {
	case slices.Contains(f.names, field) || len(f.names) > maxIgnored:
		return nil
	case len(f.names) == maxIgnored:
		field = "..."
	}
	f.names = append(f.names, field)
	f.header.Set(IgnoredHeader, strings.Join(f.names, ", "))
	return nil
}

// ignoredLog tells the log of ignored fields, seldom.
type ignoredLog struct {
	mu    sync.Mutex
	last  time.Time
	names []string // since the last line
}

// addNames tells of a request's fields now or with a later request.
func (l *ignoredLog) addNames(log *slog.Logger, names []string, now time.Time) {
	if len(names) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if len(l.names) < maxIgnored && !slices.Contains(l.names, name) {
			l.names = append(l.names, name)
		}
	}
	if l.last.IsZero() || now.Sub(l.last) >= ignoredInterval {
		log.Warn("fields of requests were ignored", "fields", strings.Join(l.names, ", "))
		l.last, l.names = now, nil
	}
}
