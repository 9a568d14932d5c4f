package serving

import (
	"cmp"
	"net/http"
	"strings"
	"sync"
	"time"
)

// How fast clients must take their answers, see answerWriter.
const (
	patience  = 30 * time.Second
	slowest   = 16 << 10 // bytes a second
	pieceSize = 16 << 10
)

// answerWriter writes an answer and remembers its status. A client may keep it waiting for patience in all, and for as long
// again as it has taken at the slowest rate: one that stalls, or reads a byte now and then, is cut off, and what was to be
// written is let go of.
type answerWriter struct {
	http.ResponseWriter
	patience time.Duration

	mu     sync.Mutex // guards the fields below, and writes
	status int
	stream bool          // of server-sent events
	over   bool          // the request was answered
	left   time.Duration // that the client may yet keep the answer waiting
}

func newAnswerWriter(w http.ResponseWriter, patience time.Duration) *answerWriter {
	http.NewResponseController(w).SetWriteDeadline(time.Time{}) // of the answer before on this connection
	return &answerWriter{ResponseWriter: w, patience: patience, left: patience}
}

func (w *answerWriter) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beginAnswer(status)
	w.ResponseWriter.WriteHeader(status)
}

// beginAnswer is called before the first byte.
func (w *answerWriter) beginAnswer(status int) {
	if w.status == 0 {
		w.status, w.stream = status, strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream")
	}
}

func (w *answerWriter) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beginAnswer(http.StatusOK)
	for more := true; more && err == nil; more = n < len(p) {
		err = w.within(func() (k int, err error) {
			k, err = w.ResponseWriter.Write(p[n:min(len(p), n+pieceSize)])
			n += k
			return k, err
		})
	}
	return n, err
}

// FlushError is what [http.ResponseController.Flush] calls.
func (w *answerWriter) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.within(func() (int, error) { return 0, http.NewResponseController(w.ResponseWriter).Flush() })
}

// within lets f write n bytes while the client may keep it waiting.
func (w *answerWriter) within(f func() (n int, err error)) error {
	start, c := time.Now(), http.NewResponseController(w.ResponseWriter)
	c.SetWriteDeadline(start.Add(w.left)) // where there are any
	n, err := f()
	if err == nil {
		c.SetWriteDeadline(time.Time{}) // at which HTTP/2 would end the stream, though nothing is written then
	}
	earned := time.Duration(n) * time.Second / slowest
	w.left = min(w.patience, w.left-time.Since(start)+earned)
	return err
}

func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// begun is the status of the answer; 0: it has not begun.
func (w *answerWriter) begun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// endAnswer is called when the request was answered.
func (w *answerWriter) endAnswer() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.left)) // for the bytes that net/http has yet to write
}

// probe writes something that its client passes over, and fails some time after the client is gone.
func (w *answerWriter) probe(c *connection) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.over:
	case w.status == 0:
		return c.probe()
	case w.stream:
		return w.within(func() (int, error) {
			n, err := w.ResponseWriter.Write([]byte(":\n\n"))
			return n, cmp.Or(err, http.NewResponseController(w.ResponseWriter).Flush())
		})
	}
	return nil
}
