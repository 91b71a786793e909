package gateway

import quotav1 "github.com/quorate/quorate/api/quota/v1"

// Bounds that tests go up to.
const (
	MaxBody       = maxBody
	MaxChecks     = maxChecks
	MaxMessage    = maxMessage
	MaxOpen       = maxOpen
	FrontTimeout  = frontTimeout
	IdentifyEvery = identifyEvery
)

// Service is the gRPC service without a connection.
func (s *Server) Service() quotav1.QuotaServer { return &quota{server: s} }
