package serving

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"glimpse/internal/panics"
	"glimpse/model"
	"glimpse/model/runner"
	"glimpse/serving/constraint"
)

// apiError is an error as OpenAI's API tells it.
type apiError struct {
	status int
	// retryAfter is when it may be asked again; 0: that is not said.
	retryAfter time.Duration
	Message    string  `json:"message"`
	Type       string  `json:"type"`
	Param      *string `json:"param"`
	Code       *string `json:"code"`
}

func (e *apiError) Error() string { return e.Message }

// The types of errors.
const (
	invalidRequest = "invalid_request_error"
	serverError    = "server_error"
)

// refuse is an error in a client's request: the field that is wrong, and why.
func refuse(param, format string, args ...any) *apiError {
	e := &apiError{status: http.StatusBadRequest, Type: invalidRequest, Message: fmt.Sprintf(format, args...)}
	if param != "" {
		e.Param, e.Message = &param, param+": "+e.Message
	}
	return e
}

func failure(status int, kind, code, format string, args ...any) *apiError {
	return &apiError{status: status, Type: kind, Code: &code, Message: fmt.Sprintf(format, args...)}
}

// coded is an error with a code that clients decide by.
func (e *apiError) coded(code string) *apiError {
	e.Code = &code
	return e
}

// ofModel is what went wrong with a request that was well-formed.
func ofModel(err error) *apiError {
	var e *apiError
	var p *panics.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &p): // the log says more
		return failure(http.StatusInternalServerError, serverError, "internal_error", "the server failed at this request")
	case errors.Is(err, errStopped):
		return failure(http.StatusServiceUnavailable, serverError, "shutting_down", "%v", err)
	case errors.Is(err, runner.ErrNoToken):
		return refuse("", "no token of the model may follow: %v", err).coded("no_token")
	case errors.Is(err, constraint.ErrTooAmbiguous):
		return refuse("", "%v", err).coded("grammar_too_ambiguous")
	case errors.Is(err, model.ErrContext):
		return refuse("", "%v", err).coded("context_length_exceeded")
	case errors.Is(err, model.ErrMemory):
		return refuse("", "%v", err).coded("insufficient_memory")
	}
	return failure(http.StatusInternalServerError, serverError, "internal_error", "%v", err)
}

// writeError answers a request with an error, in the form of its API.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	e := ofModel(err)
	if e.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(e.retryAfter.Seconds())))
	}
	if strings.HasPrefix(r.URL.Path, anthropicPaths) {
		writeJSON(w, e.status, anthropicError(w, e))
		return
	}
	writeJSON(w, e.status, map[string]any{"error": e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // a client that is gone needs no error
}
